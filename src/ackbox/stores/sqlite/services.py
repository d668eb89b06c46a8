"""The background loops that only a SQLite ledger needs: for its disk, its space and its URL."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from ackbox.errors import OUTAGES
from ackbox.services import Services
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.write.disk_space import DiskSpace
from ackbox.stores.sqlite.write.retention import SPARE_PAGES, reclaim_space
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.telemetry import Observer, SpaceReclaimed

_SECONDS = 1.0
_PAUSE_FACTOR = 4
"""A pause is this many times as long as its step: the pages of the step must also be
checkpointed."""
_PAUSE_FACTOR_BESIDE_SENDERS = 99
"""Fewer than one acknowledgement in a hundred then meets a step, so their p99 does not change."""

Sleep = Callable[[float], Awaitable[None]]


class SpaceReclaimer:
    """Returns the pages of deleted rows to the file system, a few at a time. `record` sets
    `is_busy`."""

    def __init__(
        self,
        writer: Writer,
        observe: Observer,
        *,
        spare_pages: int = SPARE_PAGES,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.is_busy = False
        self._writer = writer
        self._observe = observe
        self._spare_pages = spare_pages
        self._sleep = sleep
        self._monotonic = monotonic
        self._deleted = 0
        self._pages = 0
        self._is_due = asyncio.Event()
        self._is_due.set()  # an earlier process may have left free pages

    def note_deleted(self, rows: int) -> None:
        """Let `step` return the pages of these rows."""
        if rows:
            self._deleted += rows
            self._is_due.set()

    async def step(self) -> None:
        """Wait until rows were deleted, return some of their pages, and pause."""
        await self._is_due.wait()
        started, deleted = self._monotonic(), self._deleted
        try:
            pages = await self._writer.run(reclaim_space, self._spare_pages)
            self._note_reclaimed(pages, deleted)
        except OUTAGES:  # the writer reports its own outages
            await self._sleep(_SECONDS)
            return
        factor = _PAUSE_FACTOR_BESIDE_SENDERS if self.is_busy else _PAUSE_FACTOR
        self.is_busy = False
        await self._sleep((self._monotonic() - started) * factor)

    def _note_reclaimed(self, pages: int, deleted: int) -> None:
        self._pages += pages
        if pages or self._deleted != deleted:
            return
        self._is_due.clear()
        if self._pages:
            self._observe(SpaceReclaimed(self._pages))
            self._pages = 0


def start_services(
    services: Services,
    *,
    disk_space: DiskSpace,
    reclaimer: SpaceReclaimer,
    lock: LedgerLock,
    urls: "asyncio.Queue[str]",
    workers: int,
) -> list[asyncio.Task[None]]:
    """Run the loops under the supervisor. `urls` brings each URL at which this process listens, and
    `workers` is how many workers it has: commands on this machine read both in the lock file."""

    async def check_disk_space() -> None:
        await asyncio.to_thread(disk_space.check)

    async def advertise_url() -> None:
        lock.describe(await urls.get(), workers)

    return [
        services.run("disk-space", check_disk_space, pause=_SECONDS),
        services.run("reclaim-space", reclaimer.step),
        services.run("advertise-url", advertise_url),
    ]
