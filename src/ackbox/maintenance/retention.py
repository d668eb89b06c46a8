"""Old events go, a batch at a time, and the file shrinks (W11, F36)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Protocol

from ackbox.errors import Unavailable
from ackbox.model import RetentionPolicy, TombstonePass
from ackbox.ports import Operations
from ackbox.telemetry import Observer, Pruned, PruneFailed, RetentionPaused

_LOOK_SECONDS = 60.0
_PAUSE = 4
"""So many times as long as a step took: its pages also have to be copied back from the log."""
_PAUSE_BESIDE_SENDERS = 99
"""Then fewer than one acknowledgement in a hundred meets a step: their p99 stays as it was."""

_PLAUSIBLE_AGE = timedelta(days=1)
_PAUSE_FOR_A_CLOCK = timedelta(hours=24)

Sleep = Callable[[float], Awaitable[None]]
Monotonic = Callable[[], float]


class AddTombstones(Protocol):
    """Leave tombstones for some old events."""

    async def __call__(self, policy: RetentionPolicy, *, after: int) -> TombstonePass: ...


class Retention:
    """A pass every `interval`; once a minute, meanwhile, what is buried and ripe goes."""

    def __init__(
        self,
        store: Operations,
        policy: RetentionPolicy,
        *,
        interval: timedelta,
        observe: Observer,
        is_busy: Callable[[], bool] = lambda: False,
        sleep: Sleep = asyncio.sleep,
        monotonic: Monotonic = monotonic,
    ) -> None:
        self._store = store
        self._policy = policy
        self._interval = interval.total_seconds()
        self._observe = observe
        self._is_busy = is_busy
        self._sleep = sleep
        self._monotonic = monotonic
        self._starts_at = 0.0
        self._until_pass = 0.0
        self._hurry_at = 0.0
        self._rows_wait = True  # whoever held the ledger before may have left some

    def pause_if_implausible(self, newest_age: timedelta | None) -> None:
        """Delete nothing for a day if, at the start, the ledger last changed more than a day ago: a
        clock that is days ahead would make everything old at once (S22)."""
        if newest_age is not None and newest_age > _PLAUSIBLE_AGE:
            seconds = _PAUSE_FOR_A_CLOCK.total_seconds()
            self._starts_at = self._monotonic() + seconds
            self._observe(RetentionPaused(newest_age.total_seconds(), seconds))

    async def tick_and_wait(self) -> None:
        try:
            await self.tick()
        except Unavailable:
            pass  # the store reports its own outages
        except Exception as error:
            self._observe(PruneFailed(str(error)))
            raise
        seconds = min(_LOOK_SECONDS, self._interval)
        await self._sleep(seconds)
        self._until_pass -= seconds

    async def tick(self) -> None:
        """Do what is due now; politely, unless it would still be at it when the next is due."""
        if self._monotonic() < self._starts_at:
            return
        self._hurry_at = self._monotonic() + self._interval / 2
        if self._until_pass <= 0:
            await self.prune()
            self._until_pass = self._interval
        elif self._rows_wait:
            await self.sweep()

    async def prune(self) -> None:
        """One whole pass: bury what is old, remove what is ripe, forget what was known long
        enough, drop old rows of the audit, give free space back."""
        started = self._monotonic()
        tombstoned = await self._fail_waiting()
        deleted = await self._delete()
        purged = await self._all(lambda: self._store.purge_tombstones(self._policy))
        audit = await self._all(lambda: self._store.prune_audit(self._policy))
        pages = await self._all(self._store.reclaim_space)
        seconds = self._monotonic() - started
        self._observe(Pruned(tombstoned, deleted, purged, pages, seconds, audit))

    async def sweep(self) -> None:
        """Between two passes, what has become ripe."""
        started = self._monotonic()
        if deleted := await self._delete():
            pages = await self._all(self._store.reclaim_space)
            self._observe(Pruned(0, deleted, 0, pages, self._monotonic() - started))

    async def _fail_waiting(self) -> int:
        tombstoned = await self._walk(self._store.add_tombstones)
        tombstoned += await self._walk(self._store.add_dead_letter_tombstones)
        self._rows_wait = self._rows_wait or tombstoned > 0
        return tombstoned

    async def _walk(self, step: AddTombstones) -> int:
        place: int | None = 0
        tombstoned = 0
        while place is not None:
            after, started = place, self._monotonic()
            walk = await step(self._policy, after=after)
            tombstoned += walk.rows
            place = walk.next
            await self._yield(started)
        return tombstoned

    async def _delete(self) -> int:
        deleted, more = 0, True
        while more:
            started = self._monotonic()
            removed = await self._store.prune(self._policy)
            deleted += removed.rows
            more, self._rows_wait = removed.more, removed.waiting
            await self._yield(started)
        return deleted

    async def _all(self, step: Callable[[], Awaitable[int]]) -> int:
        total, count = 0, 1
        while count:
            started = self._monotonic()
            count = await step()
            total += count
            await self._yield(started)
        return total

    async def _yield(self, started: float) -> None:
        """Most of the writer's time is left to others, however much there is to do."""
        now = self._monotonic()
        beside = self._is_busy() and now < self._hurry_at
        await self._sleep((now - started) * (_PAUSE_BESIDE_SENDERS if beside else _PAUSE))
