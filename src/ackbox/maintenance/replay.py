"""An operator's replays: of chosen events, or by filter, counted before anything moves and then a
few at a time, so that live traffic comes first (L11)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from ackbox.model import (
    Clock,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    ReplayKind,
    Status,
)
from ackbox.ports import Operations, Reader
from ackbox.telemetry import Observer, Replayed

_BATCH = 100
_GROUPS = 1000
_OTHERS = ("(others)", None)
_MOVED = frozenset({ReplayKind.REPLAYED, ReplayKind.EXPEDITED, ReplayKind.UNPARKED})
Sleep = Callable[[float], Awaitable[None]]
Act = Callable[[Sequence[EventId]], Awaitable[int]]
"""Do something to these events; return how many of them moved."""
Ask = Callable[[], bool]


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
    """How many were looked at so far, and how many were moved: replayed, or discarded."""

    seen: int
    moved: int


class Replays:
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

    async def replay_ids(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        """Completed events are left as they are, unless they are asked for (N5)."""
        done = await self._store.replay(ids, actor=actor, peer=peer, completed=completed)
        self._observe(Replayed(actor, len(ids), _moved(done)))
        return done

    def replay_matching(
        self, where: EventFilter, *, actor: str, peer: str | None = None, rate: float
    ) -> AsyncIterator[ReplayProgress]:
        """At most `rate` a second, oldest first; each once, and none that arrives meanwhile.
        Completed events run again unless the filter skips them: see `restrict_to_replayable`."""

        async def act(ids: Sequence[EventId]) -> int:
            done = await self.replay_ids(
                ids, actor=actor, peer=peer, completed=not where.skip_completed
            )
            return _moved(done)

        pace = Pace(rate, self._sleep, self._monotonic)
        return paced(self._reader, restrict_until(self._clock(), where), act, pace)


class Pace(Struct, frozen=True):
    """At most `rate` events a second."""

    rate: float
    sleep: Sleep
    monotonic: Callable[[], float]


async def paced(
    reader: Reader, where: EventFilter, act: Act, pace: Pace
) -> AsyncIterator[ReplayProgress]:
    """Act on what the filter finds, oldest first, a few events at a time."""
    seen = moved = 0
    size = max(min(int(pace.rate), _BATCH), 1)
    async for events in pages(reader, where, size):
        started = pace.monotonic()
        moved += await act([event.id for event in events])
        seen += len(events)
        yield ReplayProgress(seen, moved)
        await pace.sleep(max(len(events) / pace.rate - (pace.monotonic() - started), 0.0))


def restrict_to_replayable(where: EventFilter, *, completed: bool) -> EventFilter:
    """Leave completed events out, unless they are asked for or named by their status (N5)."""
    asked_for = completed or where.status is Status.COMPLETED
    return where if asked_for else replace(where, skip_completed=True)


async def preview(
    reader: Reader, where: EventFilter, now: datetime, *, is_abandoned: Ask = lambda: False
) -> Preview:
    """Nothing moves. Types come from senders: what is counted apart stays bounded. If nobody waits
    for the result any more, the count ends where it is."""
    counts: Counter[tuple[str, str | None]] = Counter()
    async for events in pages(reader, restrict_until(now, where), _GROUPS, is_abandoned):
        for event in events:
            key = (event.event_type, event.error_code)
            counts[key if key in counts or len(counts) < _GROUPS else _OTHERS] += 1
    groups = [Group(*key, events) for key, events in counts.most_common()]
    return Preview(counts.total(), groups)


def restrict_until(now: datetime, where: EventFilter) -> EventFilter:
    return replace(where, until=now if where.until is None else min(where.until, now))


async def pages(
    reader: Reader, where: EventFilter, size: int, is_abandoned: Ask = lambda: False
) -> AsyncIterator[Sequence[EventRecord]]:
    """All that a filter finds, oldest first, so many at a time."""
    cursor: int | None = None
    while not is_abandoned():
        page = await reader.events(where, order=Order.OLDEST, limit=size, cursor=cursor)
        if page.items:
            yield page.items
        if (cursor := page.next) is None:
            return


def _moved(done: Mapping[EventId, ReplayKind]) -> int:
    return sum(kind in _MOVED for kind in done.values())
