"""Once a second: read the gauges, check the clock, and test whether a store that refused writes
accepts them again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from ackbox.errors import OUTAGES
from ackbox.model import Clock, Stats
from ackbox.ports import Ledger, Reader
from ackbox.telemetry import ClockStepped, Measured, Observer

_SECONDS = 1.0
_STEP_SECONDS = 30.0

Sleep = Callable[[float], Awaitable[None]]


class IngestState(Protocol):
    """The part of ingest that the monitor reads and changes."""

    @property
    def buffered(self) -> tuple[int, int]: ...

    @property
    def failing(self) -> bool: ...

    @property
    def recorded(self) -> int: ...

    def recount(self, waiting: int, recorded_before: int) -> None: ...

    def note_writable(self) -> None: ...


class Monitor:
    """The one-second ticker.

    Ingest notices when writes fail. The monitor notices when they succeed again, even if no sender
    tries. It also corrects the backlog of ingest (W7).
    """

    def __init__(  # noqa: PLR0913 - the last two are for tests
        self,
        ledger: Ledger,
        reader: Reader,
        ingest: IngestState,
        *,
        clock: Clock,
        clock_steps: Callable[[], float],
        observe: Observer,
        sleep: Sleep = asyncio.sleep,
        seconds: float = _SECONDS,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._observe = observe
        self._ingest = ingest
        self._clock = clock
        self._clock_steps = clock_steps
        self._sleep = sleep
        self._seconds = seconds

    async def tick_and_wait(self) -> None:
        with suppress(*OUTAGES):  # the store reports its own outages
            await self.tick()
        await self._sleep(self._seconds)

    async def tick(self) -> None:
        self._check_clock()
        recorded = self._ingest.recorded
        now = self._clock()
        self._ingest.recount(await self._reader.waiting(now), recorded)
        self.measure(await self._reader.stats(now))
        # Do not test while the store itself says that it is unavailable: on a nearly full disk the
        # tiny test write would succeed.
        if self._ingest.failing and self._ledger.unavailable_reason is None:
            await self._ledger.prove_writable()
            self._ingest.note_writable()

    def _check_clock(self) -> None:
        if abs(seconds := self._clock_steps()) > _STEP_SECONDS:
            self._observe(ClockStepped(seconds))

    def measure(self, stats: Stats) -> None:
        events, size = self._ingest.buffered
        self._observe(Measured(stats, events, size))
