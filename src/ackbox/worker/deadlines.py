"""Deadlines of tasks, with one timer for each length of time-out.

One timer for each task cost a fifth of a worker's CPU time.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from time import monotonic
from typing import Any

from msgspec import Struct

Task = asyncio.Task[Any]
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


Guard = Callable[[Callable[[], object]], None]
"""Calls its argument. The guard of a supervisor records an error instead of raising it."""


def call_directly(call: Callable[[], object]) -> None:
    call()


def call_later_detached(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    """Set a timer that does not run in the context of the run that happens to set it."""
    return asyncio.get_running_loop().call_later(seconds, call, context=Context())


class Timers(Struct, frozen=True):
    """The time of the event loop: a monotonic clock and timers that follow it."""

    monotonic: Callable[[], float] = monotonic
    call_later: CallLater = call_later_detached


_TIMERS = Timers()


class Deadlines:
    """Calls `on_overdue` once with each task that did not end in time."""

    def __init__(
        self,
        on_overdue: Callable[[Task], None],
        *,
        guard: Guard = call_directly,
        timers: Timers = _TIMERS,
    ) -> None:
        self._on_overdue = on_overdue
        self._guard = guard
        self._monotonic = timers.monotonic
        self._call_later = timers.call_later
        # Tasks with the same time-out are due in the order in which they started. A dict keeps this
        # order when tasks are removed.
        self._started: dict[timedelta, dict[Task, float]] = {}
        self._timers: dict[timedelta, asyncio.TimerHandle] = {}

    def start(self, task: Task, allowed: timedelta) -> None:
        started = self._started.get(allowed)
        if started is None:
            started = self._started[allowed] = {}
        started[task] = self._monotonic()
        if allowed not in self._timers:
            self._set_timer(allowed, allowed.total_seconds())

    def end(self, task: Task, allowed: timedelta) -> bool:
        """Remove the task and return whether it ended in time.

        The timer is not changed: nearly all tasks end long before it fires. When it fires, it
        checks the oldest task that is left.
        """
        return self._started[allowed].pop(task, None) is not None

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _set_timer(self, allowed: timedelta, after: float) -> None:
        self._timers[allowed] = self._call_later(after, lambda: self._on_timer(allowed))

    def _on_timer(self, allowed: timedelta) -> None:
        """Report overdue tasks, and set the next timer even if reporting one of them fails."""
        del self._timers[allowed]
        try:
            self._guard(lambda: self._end_overdue(allowed))
        finally:
            self._set_next_timer(allowed)

    def _end_overdue(self, allowed: timedelta) -> None:
        started, seconds = self._started[allowed], allowed.total_seconds()
        now = self._monotonic()
        while started:
            task, since = next(iter(started.items()))
            if since + seconds > now:
                return
            del started[task]
            try:
                self._on_overdue(task)
            except BaseException:
                started[task] = now  # it is reported again, after the others
                raise

    def _set_next_timer(self, allowed: timedelta) -> None:
        if started := self._started[allowed]:
            since = next(iter(started.values()))
            after = since + allowed.total_seconds() - self._monotonic()
            self._set_timer(allowed, max(after, 0.0))
