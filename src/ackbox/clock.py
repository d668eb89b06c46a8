"""The clock of one process: it follows the machine's clock, but never jumps (F25)."""

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock

from ackbox.model import Clock

_SLEW = 0.25
"""The largest deviation of the speed. A lease must outlast its renewals even while this clock runs
fast; up to 1.5 times the speed would be safe."""

Elapsed = Callable[[], float]
"""Seconds since a fixed moment, from a clock that nobody can set."""


def uptime() -> float:
    """Return the seconds since the machine booted. Time in which it slept counts."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """A clock that starts with the wall clock and advances by `elapsed`. After the wall clock was
    set, this clock runs a quarter faster or slower until both agree: it never jumps or goes
    back."""

    def __init__(self, wall: Clock, elapsed: Elapsed) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._lock = Lock()
        self._read_at = elapsed()
        self._now = wall()

    def __call__(self) -> datetime:
        with self._lock:
            read_at = self._elapsed()
            passed = timedelta(seconds=read_at - self._read_at)
            self._read_at = read_at
            self._now += passed
            self._now += min(max(self._wall() - self._now, -passed * _SLEW), passed * _SLEW)
            return self._now


class ClockSteps:
    """A callable that returns by how many seconds the wall clock was set since the last call."""

    def __init__(self, wall: Clock, elapsed: Elapsed) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._offset = self._measure()

    def __call__(self) -> float:
        before, self._offset = self._offset, self._measure()
        return self._offset - before

    def _measure(self) -> float:
        return self._wall().timestamp() - self._elapsed()
