"""Replay events on behalf of an operator, by id or by filter.

A replay by filter can be counted first, and runs at a limited rate, so that live traffic comes
first (L11).
"""

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
_CHANGING = frozenset({ReplayKind.REPLAYED, ReplayKind.EXPEDITED, ReplayKind.UNPARKED})
Sleep = Callable[[float], Awaitable[None]]
Act = Callable[[Sequence[EventId]], Awaitable[int]]
"""Change these events; return how many of them changed."""
IsAbandoned = Callable[[], bool]
"""Return whether nobody waits for the result any more."""


class Group(Struct, frozen=True):
    """The number of events with one type and one error code."""

    event_type: str
    error_code: str | None
    events: int


class Preview(Struct, frozen=True):
    """The events that a filter matches. Past 1000 groups, the events of all further groups are
    counted together."""

    events: int
    groups: Sequence[Group]


class ReplayProgress(Struct, frozen=True):
    """How many events were processed so far, and how many of them changed."""

    seen: int
    changed: int


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
        """Replay these events. Leave completed events as they are unless `completed` is set
        (N5)."""
        done = await self._store.replay(ids, actor=actor, peer=peer, completed=completed)
        self._observe(Replayed(actor, len(ids), _count_changed(done)))
        return done

    def replay_matching(
        self, where: EventFilter, *, actor: str, peer: str | None = None, rate: float
    ) -> AsyncIterator[ReplayProgress]:
        """Replay matching events, oldest first, at most `rate` a second.

        Each event is replayed once; events that arrive meanwhile are left out. Completed events are
        replayed too, unless the filter skips them: see `restrict_to_replayable`.
        """

        async def act(ids: Sequence[EventId]) -> int:
            done = await self.replay_ids(
                ids, actor=actor, peer=peer, completed=not where.skip_completed
            )
            return _count_changed(done)

        pace = Pace(rate, self._sleep, self._monotonic)
        return paced(self._reader, restrict_until(self._clock(), where), act, pace)


class Pace(Struct, frozen=True):
    """The pace of a bulk action: at most `rate` events a second."""

    rate: float
    sleep: Sleep
    monotonic: Callable[[], float]


async def paced(
    reader: Reader, where: EventFilter, act: Act, pace: Pace
) -> AsyncIterator[ReplayProgress]:
    """Act on the matching events, oldest first, in small batches at the given pace."""
    seen = changed = 0
    size = max(min(int(pace.rate), _BATCH), 1)
    async for events in pages(reader, where, size):
        started = pace.monotonic()
        changed += await act([event.id for event in events])
        seen += len(events)
        yield ReplayProgress(seen, changed)
        await pace.sleep(max(len(events) / pace.rate - (pace.monotonic() - started), 0.0))


def restrict_to_replayable(where: EventFilter, *, completed: bool) -> EventFilter:
    """Leave completed events out of the filter, unless `completed` is set or the filter names
    their status (N5)."""
    includes_completed = completed or where.status is Status.COMPLETED
    return where if includes_completed else replace(where, skip_completed=True)


async def preview(
    reader: Reader,
    where: EventFilter,
    now: datetime,
    *,
    is_abandoned: IsAbandoned = lambda: False,
    group_limit: int = _GROUPS,
) -> Preview:
    """Count the matching events by type and error code, without changing them.

    Types come from senders, so the number of groups is bounded. If nobody waits for the result any
    more, the count ends early.
    """
    counts: Counter[tuple[str, str | None]] = Counter()
    async for events in pages(reader, restrict_until(now, where), group_limit, is_abandoned):
        for event in events:
            key = (event.event_type, event.error_code)
            counts[key if key in counts or len(counts) < group_limit else _OTHERS] += 1
    groups = [Group(*key, events) for key, events in counts.most_common()]
    return Preview(counts.total(), groups)


def restrict_until(now: datetime, where: EventFilter) -> EventFilter:
    """Leave out events that arrived after `now`."""
    return replace(where, until=now if where.until is None else min(where.until, now))


async def pages(
    reader: Reader, where: EventFilter, size: int, is_abandoned: IsAbandoned = lambda: False
) -> AsyncIterator[Sequence[EventRecord]]:
    """Yield all matching events, oldest first, in pages of at most `size`."""
    cursor: int | None = None
    while not is_abandoned():
        page = await reader.events(where, order=Order.OLDEST, limit=size, cursor=cursor)
        if page.items:
            yield page.items
        if (cursor := page.next) is None:
            return


def _count_changed(done: Mapping[EventId, ReplayKind]) -> int:
    return sum(kind in _CHANGING for kind in done.values())
