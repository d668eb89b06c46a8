"""Clocks and timers that move only when a test moves them."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import cast

from ackbox.worker.deadlines import Timers
from ackbox.worker.threads import ThreadClock
from support.ledgers.events import NOON


class _Timer:
    def __init__(self, at: float, call: Callable[[], None], timers: "list[_Timer]") -> None:
        self.at = at
        self.call = call
        self._timers = timers

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)


class ManualTimers:
    """Timers of the event loop; `timers` are those that are neither cancelled nor fired."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Timer] = []
        self.as_timers = Timers(lambda: self.now, self._call_later)

    def move_to(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer.at <= now]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = first.at
            first.call()
        self.now = now

    def _call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(_Timer(self.now + seconds, call, self.timers))
        return cast(asyncio.TimerHandle, self.timers[-1])


class SteppedThread:
    """The clock of a background thread, which stops at every wait until the test lets it continue.

    A wait returns whether its event is set, after its full time has passed on the clock.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = ThreadClock(lambda: self.now, self._wait)
        self._is_free = False
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._arrivals: SimpleQueue[None] = SimpleQueue()

    def await_wait(self) -> None:
        """Block until the thread has reached its next wait."""
        self._arrivals.get(timeout=10)

    def step(self) -> None:
        """End the wait of the thread, and block until the thread has reached the next."""
        self._permits.put(None)
        self.await_wait()

    def release(self) -> None:
        """Let the thread run to its end; its remaining waits take no time."""
        self._is_free = True
        self._permits.put(None)

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        if not self._is_free:
            self._arrivals.put(None)
            self._permits.get()
        self.now += seconds
        return event.is_set()


class ManualClock:
    """A clock of wall time, called like `utc_now`."""

    def __init__(self, start: datetime = NOON) -> None:
        self.now = start

    @property
    def now(self) -> datetime:
        return self._now

    @now.setter
    def now(self, moment: datetime) -> None:
        self._now = moment

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **span: float) -> datetime:
        """Move the clock, as in `advance(days=1, seconds=2)`, and return the new time."""
        self.now += timedelta(**span)
        return self.now
