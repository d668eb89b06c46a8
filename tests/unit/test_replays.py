"""Replay by filter: its rate, its bounds, and that each event is replayed once."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ackbox.maintenance import Preview, Replays, preview, restrict_to_replayable
from ackbox.model import (
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Page,
    ReplayKind,
    Status,
)
from ackbox.ports import Operations, Reader
from ackbox.telemetry import Replayed
from support.ledgers.events import NOON
from support.ledgers.facts import Facts

FAILED = EventFilter(status=Status.FAILED)


def event(n: int, **more: Any) -> EventRecord:
    empty = dict.fromkeys(EventRecord.__struct_fields__)
    fields = {"ledger_id": n, "id": f"id-{n}", "event_type": "t", "error_code": "boom", **more}
    return EventRecord(**cast("dict[str, Any]", empty | fields))


class Ledger:
    """These events; every third page is empty, because a page may be short."""

    def __init__(self, events: Sequence[EventRecord]) -> None:
        self.all = events
        self.filters: list[EventFilter] = []
        self.batches: list[list[EventId]] = []
        self.completed: set[bool] = set()

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        assert order is Order.OLDEST
        self.filters.append(where)
        if len(self.filters) % 3 == 0:
            return Page([], cursor or 0)
        rest = [event for event in self.all if event.ledger_id > (cursor or 0)]
        items = rest[:limit]
        return Page(items, items[-1].ledger_id if len(rest) > limit else None)

    async def replay(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        self.batches.append(list(ids))
        self.completed.add(completed)
        return dict.fromkeys(ids, ReplayKind.REPLAYED)


class Sleeps(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def replays(ledger: Ledger, facts: Facts, sleeps: Sleeps, step: float = 0.0) -> Replays:
    now = iter(n * step for n in range(100_000))
    return Replays(
        cast("Operations", ledger),
        cast("Reader", ledger),
        clock=lambda: NOON,
        observe=facts,
        sleep=sleeps,
        monotonic=lambda: next(now),
    )


async def preview_of(ledger: Ledger, where: EventFilter) -> Preview:
    return await preview(cast("Reader", ledger), where, NOON)


async def test_a_preview_that_nobody_waits_for_ends_early() -> None:  # S21
    ledger = Ledger([event(n) for n in range(1, 9001)])
    abandoned = iter([False, False, False, True])

    await preview(cast("Reader", ledger), FAILED, NOON, is_abandoned=lambda: next(abandoned, True))

    assert len(ledger.filters) == 3


# L11
async def test_the_rate_is_kept_in_small_batches() -> None:
    ledger, sleeps, facts = Ledger([event(n) for n in range(1, 251)]), Sleeps(), Facts()
    steps = replays(ledger, facts, sleeps).replay_matching(FAILED, actor="jo", rate=1000)
    progress = [(step.seen, step.changed) async for step in steps]
    assert progress == [(100, 100), (200, 200), (250, 250)]
    assert sleeps == [0.1, 0.1, 0.05]
    assert [fact.changed for fact in facts.of(Replayed)] == [100, 100, 50]


# L11
async def test_the_duration_of_a_batch_is_part_of_its_pause() -> None:
    sleeps = Sleeps()
    ledger = Ledger([event(n) for n in range(1, 3)])
    steps = replays(ledger, Facts(), sleeps, step=0.75).replay_matching(FAILED, actor="jo", rate=1)
    assert [step.seen async for step in steps] == [1, 2]
    assert sleeps == [0.25, 0.25]


# L11
async def test_each_event_is_replayed_once_and_in_order() -> None:
    ledger = Ledger([event(n) for n in range(1, 251)])
    steps = replays(ledger, Facts(), Sleeps()).replay_matching(FAILED, actor="jo", rate=37)
    async for _ in steps:
        pass
    assert [replayed for ids in ledger.batches for replayed in ids] == [
        event.id for event in ledger.all
    ]


# N5
@pytest.mark.parametrize(
    ("where", "requested", "completed"),
    [
        (EventFilter(source="s"), False, False),
        (EventFilter(source="s"), True, True),
        (EventFilter(status=Status.COMPLETED), False, True),
        (EventFilter(outcome="ignored"), True, True),
        (FAILED, False, False),
    ],
)
async def test_completed_events_run_again_only_on_request(
    where: EventFilter, requested: bool, completed: bool
) -> None:
    ledger = Ledger([event(1)])
    matching = restrict_to_replayable(where, completed=requested)
    async for _ in replays(ledger, Facts(), Sleeps()).replay_matching(matching, actor="jo", rate=1):
        pass
    assert ledger.completed == {completed}
    assert {where.skip_completed for where in ledger.filters} == {not completed}


# L11
async def test_events_that_arrive_meanwhile_are_left_out() -> None:
    ledger = Ledger([event(1)])
    await preview_of(ledger, FAILED)
    await preview_of(ledger, replace(FAILED, until=NOON - timedelta(days=1)))
    await preview_of(ledger, replace(FAILED, until=NOON + timedelta(days=1)))
    untils = [where.until for where in ledger.filters]
    assert set(untils) == {NOON, NOON - timedelta(days=1)}


# L11
async def test_a_preview_counts_by_type_and_error() -> None:
    events = [event(n, error_code="a" if n % 3 else "b") for n in range(1, 10)]
    ledger = Ledger(events)
    result = await preview_of(ledger, FAILED)
    assert result.events == 9
    assert [(group.error_code, group.events) for group in result.groups] == [("a", 6), ("b", 3)]
    assert ledger.batches == []


# F43
async def test_a_preview_of_very_many_types_stays_small() -> None:
    ledger = Ledger([event(n, event_type=f"t-{n}") for n in range(1, 1050)])
    result = await preview_of(ledger, FAILED)
    assert result.events == 1049
    assert len(result.groups) == 1001
    assert result.groups[0].event_type == "(others)"
