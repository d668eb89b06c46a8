"""A plain handler runs in a thread of its own: it cannot be cancelled, only abandoned."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from msgspec import Struct


class Ended(Struct, frozen=True):
    """What a handler returned, or what it raised. A value, even if it raised: nobody may be waiting
    any more, and asyncio reports an exception that nobody takes."""

    returned: Any
    error: BaseException | None = None


class HandlerThread:
    """A daemon: an abandoned one must not keep the process from exiting."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._call = call
        self._context = copy_context()  # log lines of the thread name its event
        self._loop = loop
        self._thread = threading.Thread(target=self._main, name="ackbox-handler", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def _main(self) -> None:
        try:
            ended = Ended(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - around a handler: goes to whoever waits
            ended = Ended(None, error)
        try:
            self._loop.call_soon_threadsafe(_finish, self.ended, ended)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _finish(future: "asyncio.Future[Ended]", ended: Ended) -> None:
    if not future.done():
        future.set_result(ended)
