"""An operator's replays: of chosen events, or by filter, counted before anything moves and then a
few at a time, so that live traffic comes first (L11)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from ackbox.model import Clock, EventFilter, EventId, EventRecord, Order, ReplayKind
from ackbox.ports import Reader, Upkeep
from ackbox.telemetry import Observer, Replayed

_BATCH = 100
_GROUPS = 1000
_OTHERS = ("(others)", None)
_MOVED = frozenset({ReplayKind.REPLAYED, ReplayKind.HURRIED, ReplayKind.PUT_BACK})

Sleep = Callable[[float], Awaitable[None]]


class Group(Struct, frozen=True):
    """So many events of one type and one error code."""

    event_type: str
    error_code: str | None
    events: int


class Preview(Struct, frozen=True):
    """What a replay would look at; the rarest of very many groups are put together."""

    events: int
    groups: Sequence[Group]


class ReplayProgress(Struct, frozen=True):
    """How many were looked at so far, and how many got a new run."""

    seen: int
    moved: int


class Replays:
    def __init__(
        self,
        store: Upkeep,
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

    async def these(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, ReplayKind]:
        done = await self._store.replay(ids, actor=actor, peer=peer)
        self._observe(Replayed(actor, len(ids), _moved(done)))
        return done

    async def by_filter(
        self, where: EventFilter, *, actor: str, peer: str | None = None, rate: float
    ) -> AsyncIterator[ReplayProgress]:
        """At most `rate` a second, oldest first; each once, and none that arrives meanwhile."""
        seen = moved = 0
        size = max(min(int(rate), _BATCH), 1)
        async for events in pages(self._reader, up_to(self._clock(), where), size):
            started = self._monotonic()
            done = await self.these([event.id for event in events], actor=actor, peer=peer)
            seen, moved = seen + len(events), moved + _moved(done)
            yield ReplayProgress(seen, moved)
            await self._sleep(max(len(events) / rate - (self._monotonic() - started), 0.0))


async def preview(reader: Reader, where: EventFilter, now: datetime) -> Preview:
    """Nothing moves. Types come from senders: what is counted apart stays bounded."""
    counts: Counter[tuple[str, str | None]] = Counter()
    async for events in pages(reader, up_to(now, where), _GROUPS):
        for event in events:
            key = (event.event_type, event.error_code)
            counts[key if key in counts or len(counts) < _GROUPS else _OTHERS] += 1
    groups = [Group(*key, events) for key, events in counts.most_common()]
    return Preview(counts.total(), groups)


def up_to(now: datetime, where: EventFilter) -> EventFilter:
    return replace(where, until=now if where.until is None else min(where.until, now))


async def pages(
    reader: Reader, where: EventFilter, size: int
) -> AsyncIterator[Sequence[EventRecord]]:
    """All that a filter finds, oldest first, so many at a time."""
    cursor: int | None = None
    while True:
        page = await reader.events(where, order=Order.OLDEST, limit=size, cursor=cursor)
        if page.items:
            yield page.items
        if (cursor := page.next) is None:
            return


def _moved(done: Mapping[EventId, ReplayKind]) -> int:
    return sum(kind in _MOVED for kind in done.values())
