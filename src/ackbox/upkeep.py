"""What happens about once a second, whatever else does: the gauges are read, the disk is looked at,
and a store that refused writes is asked whether it takes them again."""

import asyncio
from collections.abc import Awaitable, Callable

from ackbox.errors import AckboxError
from ackbox.model import Stats
from ackbox.ports import Ledger, Reader, Upkeep
from ackbox.telemetry import Measured, Observer

_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]
Buffered = Callable[[], tuple[int, int]]


class Watch:
    """`failing` and `note_writable` are ingest's: it knows when writes fail, we find out when they
    work again, also when no sender comes to try."""

    def __init__(
        self,
        ledger: Ledger,
        reader: Reader,
        upkeep: Upkeep,
        *,
        observe: Observer,
        buffered: Buffered,
        failing: Callable[[], bool],
        note_writable: Callable[[], None],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._upkeep = upkeep
        self._observe = observe
        self._buffered = buffered
        self._failing = failing
        self._note_writable = note_writable
        self._sleep = sleep

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except AckboxError:
                pass  # what is wrong with the store is told by the store; the gauges stay as they were
            await self._sleep(_SECONDS)

    async def look(self) -> None:
        await asyncio.to_thread(self._upkeep.check_room)
        if self._failing():
            await self._ledger.prove_writable()
            self._note_writable()
        self.measure(await self._reader.stats())

    def measure(self, stats: Stats) -> None:
        events, size = self._buffered()
        self._observe(Measured(stats, events, size))
