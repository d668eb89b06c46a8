"""Delete old events, a batch at a time (W11, F36)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

from ackbox.errors import OUTAGES
from ackbox.model import PurgeResult, RetentionPolicy, Status
from ackbox.ports import RetentionStore
from ackbox.telemetry import Observer, Pruned, PruneFailed, RetentionPaused

_TICK_SECONDS = 60.0
_PAUSE_FACTOR = 4
"""A pause is this many times as long as its step: the pages of the step must also be
checkpointed."""
_PAUSE_FACTOR_BESIDE_SENDERS = 99
"""Fewer than one acknowledgement in a hundred then meets a step, so their p99 does not change."""

_PLAUSIBLE_AGE = timedelta(days=1)
_CLOCK_PAUSE = timedelta(hours=24)

Sleep = Callable[[float], Awaitable[None]]
Monotonic = Callable[[], float]


class Retention:
    """Makes a pass every `interval`. Between two passes, once a minute, it deletes the events whose
    tombstones have become old enough. `recorded` returns how many events senders have sent."""

    def __init__(
        self,
        store: RetentionStore,
        policy: RetentionPolicy,
        *,
        interval: timedelta,
        observe: Observer,
        recorded: Callable[[], int] = lambda: 0,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = monotonic,
    ) -> None:
        self._store = store
        self._policy = policy
        self._interval = interval.total_seconds()
        self._observe = observe
        self._recorded = recorded
        self._recorded_before = recorded()
        self._sleep = sleep
        self._monotonic = monotonic
        self._starts_at = 0.0
        self._seconds_until_pass = 0.0
        self._polite_until = 0.0
        self._has_tombstoned_rows = True  # an earlier process may have left some

    def pause_if_implausible(self, newest_age: timedelta | None) -> None:
        """Delete nothing for a day if, at the start, the ledger last changed more than a day ago: a
        clock that is days ahead would make everything old at once (S22)."""
        if newest_age is not None and newest_age > _PLAUSIBLE_AGE:
            seconds = _CLOCK_PAUSE.total_seconds()
            self._starts_at = self._monotonic() + seconds
            self._observe(RetentionPaused(newest_age.total_seconds(), seconds))

    async def tick_and_wait(self) -> None:
        try:
            await self.tick()
        except OUTAGES:
            pass  # the store reports its own outages
        except Exception as error:
            self._observe(PruneFailed(str(error)))
            raise
        seconds = min(_TICK_SECONDS, self._interval)
        await self._sleep(seconds)
        self._seconds_until_pass -= seconds

    async def tick(self) -> None:
        """Do the work that is due. While senders are busy, make long pauses, but only for half of
        the interval: the work must end before the next pass is due."""
        if self._monotonic() < self._starts_at:
            return
        self._polite_until = self._monotonic() + self._interval / 2
        if self._seconds_until_pass <= 0:
            await self.prune()
            self._seconds_until_pass = self._interval
        elif self._has_tombstoned_rows:
            await self.sweep()

    async def prune(self) -> None:
        """Make one pass: add tombstones for old events, delete events with tombstones that are old
        enough, and delete old tombstones, audit rows, fingerprints and requests of the
        quarantine."""
        started = self._monotonic()
        tombstoned = await self._add_tombstones()
        deleted = await self._delete()
        purged = await self._purge()
        quarantined = await self._repeat(lambda: self._store.prune_quarantine(self._policy))
        await self._repeat(self._store.prune_fingerprints)
        seconds = self._monotonic() - started
        self._observe(
            Pruned(tombstoned, deleted, purged.tombstones, seconds, purged.audit, quarantined)
        )

    async def sweep(self) -> None:
        """Delete the events whose tombstones have become old enough since the last pass."""
        started = self._monotonic()
        if deleted := await self._delete():
            self._observe(Pruned(0, deleted, 0, self._monotonic() - started))

    async def _add_tombstones(self) -> int:
        tombstoned = await self._add_all(Status.COMPLETED) + await self._add_all(Status.FAILED)
        self._has_tombstoned_rows = self._has_tombstoned_rows or tombstoned > 0
        return tombstoned

    async def _add_all(self, status: Status) -> int:
        after: int | None = 0
        tombstoned = 0
        while after is not None:
            started = self._monotonic()
            added = await self._store.add_tombstones(self._policy, status, after=after)
            tombstoned += added.rows
            after = added.next
            await self._yield(started)
        return tombstoned

    async def _delete(self) -> int:
        deleted, more = 0, True
        while more:
            started = self._monotonic()
            pruned = await self._store.prune(self._policy)
            deleted += pruned.rows
            more, self._has_tombstoned_rows = pruned.more, pruned.waiting
            await self._yield(started)
        return deleted

    async def _purge(self) -> PurgeResult:
        tombstones, audit, more = 0, 0, True
        while more:
            started = self._monotonic()
            purged = await self._store.purge(self._policy)
            tombstones += purged.tombstones
            audit += purged.audit
            more = purged != PurgeResult(0, 0)
            await self._yield(started)
        return PurgeResult(tombstones, audit)

    async def _repeat(self, step: Callable[[], Awaitable[int]]) -> int:
        deleted, rows = 0, None
        while rows != 0:
            started = self._monotonic()
            rows = await step()
            deleted += rows
            await self._yield(started)
        return deleted

    async def _yield(self, started: float) -> None:
        """Pause, so that most of the writer's time is left to others however much work is due."""
        now = self._monotonic()
        recorded = self._recorded()
        is_polite = recorded != self._recorded_before and now < self._polite_until
        self._recorded_before = recorded
        await self._sleep(
            (now - started) * (_PAUSE_FACTOR_BESIDE_SENDERS if is_polite else _PAUSE_FACTOR)
        )
