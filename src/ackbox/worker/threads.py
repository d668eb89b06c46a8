"""A thread for each run of a plain handler, and the clock of background threads.

A thread cannot be cancelled, only abandoned.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from time import monotonic
from typing import Any

from msgspec import Struct


class ThreadClock(Struct, frozen=True):
    """The time of a background thread. `wait` waits for an event until a time-out in seconds, and
    returns whether the event is set."""

    monotonic: Callable[[], float] = monotonic
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait


class Ended(Struct, frozen=True):
    """The result of a handler: its return value or its exception.

    An exception is kept as a value because nobody may be waiting any more, and asyncio reports
    exceptions that nobody retrieves.
    """

    returned: Any
    error: BaseException | None = None


class HandlerThread:
    """A daemon thread, so that an abandoned handler does not keep the process from exiting."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._call = call
        self._context = copy_context()  # so that log lines of the thread name its event
        self._loop = loop
        self._thread = threading.Thread(target=self._main, name="ackbox-handler", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def _main(self) -> None:
        try:
            ended = Ended(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - around a handler: the waiting run gets it
            ended = Ended(None, error)
        try:
            self._loop.call_soon_threadsafe(_finish, self.ended, ended)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _finish(future: "asyncio.Future[Ended]", ended: Ended) -> None:
    if not future.done():
        future.set_result(ended)
