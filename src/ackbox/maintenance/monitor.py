"""What happens about once a second, whatever else does: the gauges are read, clock and disk are
looked at, and a store that refused writes is asked whether it takes them again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from ackbox.errors import Unavailable
from ackbox.model import Stats
from ackbox.ports import Reader, Store
from ackbox.telemetry import ClockStepped, Measured, Observer

_SECONDS = 1.0
_STEP_SECONDS = 30.0

Sleep = Callable[[float], Awaitable[None]]


class IngestState(Protocol):
    """Of ingest, what is looked at here."""

    @property
    def buffered(self) -> tuple[int, int]: ...

    @property
    def failing(self) -> bool: ...

    def note_writable(self) -> None: ...


class Monitor:
    """The door knows when writes fail, we find out when they work again, also when no sender comes
    to try. `recount` puts its backlog right (W7)."""

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
        with suppress(Unavailable):  # the store reports its own outages
            await self.tick()
        await self._sleep(_SECONDS)

    async def tick(self) -> None:
        self._look_at_clock()
        await asyncio.to_thread(self._store.check_free_space)
        await self._recount()
        self.measure(await self._reader.stats())
        if (
            self._ingest_state.failing and self._store.unavailable_reason is None
        ):  # on a full disk, small writes work
            await self._store.prove_writable()
            self._ingest_state.note_writable()

    def _look_at_clock(self) -> None:
        if abs(seconds := self._clock_steps()) > _STEP_SECONDS:
            self._observe(ClockStepped(seconds))

    def measure(self, stats: Stats) -> None:
        events, size = self._ingest_state.buffered
        self._observe(Measured(stats, events, size))
