"""Once a second: read the gauges, check the clock and the disk, and test whether a store that
refused writes accepts them again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from ackbox.errors import OUTAGES
from ackbox.model import Stats
from ackbox.ports import Reader, Store
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

    def note_writable(self) -> None: ...


class Monitor:
    """The one-second ticker.

    Ingest notices when writes fail. The monitor notices when they succeed again, even if no sender
    tries. `recount` corrects the backlog of ingest (W7).
    """

    def __init__(
        self,
        store: Store,
        reader: Reader,
        *,
        observe: Observer,
        ingest_state: IngestState,
        recount: Callable[[], Awaitable[None]],
        clock_steps: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._reader = reader
        self._observe = observe
        self._ingest_state = ingest_state
        self._recount = recount
        self._clock_steps = clock_steps
        self._sleep = sleep

    async def tick_and_wait(self) -> None:
        with suppress(*OUTAGES):  # the store reports its own outages
            await self.tick()
        await self._sleep(_SECONDS)

    async def tick(self) -> None:
        self._check_clock()
        await asyncio.to_thread(self._store.check_free_space)
        await self._recount()
        self.measure(await self._reader.stats())
        # Do not test while the store itself says that it is unavailable: on a nearly full disk the
        # tiny test write would succeed.
        if self._ingest_state.failing and self._store.unavailable_reason is None:
            await self._store.prove_writable()
            self._ingest_state.note_writable()

    def _check_clock(self) -> None:
        if abs(seconds := self._clock_steps()) > _STEP_SECONDS:
            self._observe(ClockStepped(seconds))

    def measure(self, stats: Stats) -> None:
        events, size = self._ingest_state.buffered
        self._observe(Measured(stats, events, size))
