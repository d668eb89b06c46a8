"""When tasks must have ended: one timer for each length of time. One for each task was a fifth of
a worker's CPU time."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from time import monotonic
from typing import Any

Task = asyncio.Task[Any]
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


Guard = Callable[[Callable[[], object]], None]
"""Calls what it is given; a supervisor's records an error instead of raising it."""


def run_at_once(call: Callable[[], object]) -> None:
    call()


class Deadlines:
    """Tells `overdue` of each task that did not end in time, once."""

    def __init__(
        self,
        overdue: Callable[[Task], None],
        *,
        guard: Guard = run_at_once,
        monotonic: Callable[[], float] = monotonic,
        call_later: CallLater | None = None,
    ) -> None:
        self._overdue = overdue
        self._guard = guard
        self._monotonic = monotonic
        self._call_later = call_later or run_later
        # Those that may take equally long are due in the order they started in, which a dict keeps
        # while any of them leaves.
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
        """Whether it ended in time. The timer stays as it is: nearly all end long before it rings,
        and then it looks for the oldest that is left."""
        return self._started[allowed].pop(task, None) is not None

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _set_timer(self, allowed: timedelta, after: float) -> None:
        self._timers[allowed] = self._call_later(after, lambda: self._wake(allowed))

    def _wake(self, allowed: timedelta) -> None:
        """A task that cannot be told of must not keep the others from their end."""
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
                self._overdue(task)
            except BaseException:
                started[task] = now  # it is told again, after the others
                raise

    def _set_next_timer(self, allowed: timedelta) -> None:
        if started := self._started[allowed]:
            since = next(iter(started.values()))
            after = since + allowed.total_seconds() - self._monotonic()
            self._set_timer(allowed, max(after, 0.0))


def run_later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    """Not in the context of the run that happens to set it."""
    return asyncio.get_running_loop().call_later(seconds, call, context=Context())
