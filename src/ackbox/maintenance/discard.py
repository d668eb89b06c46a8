"""Discard events on behalf of an operator, by id or by filter (N14)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from time import monotonic

from msgspec.structs import replace

from ackbox.maintenance.replay import Pace, ReplayProgress, Sleep, paced, restrict_until
from ackbox.model import Clock, DiscardKind, EventFilter, EventId
from ackbox.ports import Operations, Reader
from ackbox.telemetry import Discarded, Observer


class Discards:
    def __init__(
        self,
        store: Operations,
        reader: Reader,
        *,
        clock: Clock,
        observe: Observer,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._observe = observe
        self._sleep = sleep
        self._monotonic = monotonic

    async def discard_ids(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, DiscardKind]:
        done = await self._store.discard(ids, actor=actor, peer=peer)
        self._observe(Discarded(actor, len(ids), _count_discarded(done)))
        return done

    def discard_matching(
        self, where: EventFilter, *, actor: str, peer: str | None = None, rate: float
    ) -> AsyncIterator[ReplayProgress]:
        """Discard matching events, oldest first, at most `rate` a second. Events that arrive
        meanwhile are left out."""

        async def act(ids: Sequence[EventId]) -> int:
            return _count_discarded(await self.discard_ids(ids, actor=actor, peer=peer))

        matching = restrict_until(self._clock(), restrict_to_discardable(where))
        return paced(self._reader, matching, act, Pace(rate, self._sleep, self._monotonic))


def restrict_to_discardable(where: EventFilter) -> EventFilter:
    """Leave completed events out of the filter: a discard does not change them."""
    return replace(where, skip_completed=True)


def _count_discarded(done: Mapping[EventId, DiscardKind]) -> int:
    return sum(kind is DiscardKind.DISCARDED for kind in done.values())
