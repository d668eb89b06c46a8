"""A plain handler runs in a thread of its own: it cannot be cancelled, only abandoned."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class Raised(Exception):
    """What a future takes none of: StopIteration, or no Exception at all."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class HandlerThread:
    """A daemon: an abandoned one must not keep the process from exiting."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.finished: asyncio.Future[Any] = loop.create_future()
        self._call = call
        self._loop = loop
        threading.Thread(target=self._main, name="ackbox-handler", daemon=True).start()

    def _main(self) -> None:
        try:
            returned = self._call()
        except BaseException as error:  # noqa: BLE001 - around a handler: goes to whoever waits
            self._tell(None, error)
        else:
            self._tell(returned, None)

    def _tell(self, returned: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_finish, self.finished, returned, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _finish(finished: "asyncio.Future[Any]", returned: Any, error: BaseException | None) -> None:
    if finished.done():
        return
    if error is None:
        finished.set_result(returned)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        finished.set_exception(error)
    else:
        finished.set_exception(Raised(error))
