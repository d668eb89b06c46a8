"""When retention does its work, and that it continues after failures."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ackbox.errors import Unavailable
from ackbox.maintenance import Retention
from ackbox.model import (
    EventRecord,
    PruneResult,
    PurgeResult,
    RetentionPolicy,
    Status,
    TombstonePass,
)
from ackbox.ports import RetentionStore
from ackbox.telemetry import Pruned, PruneFailed, RetentionPaused
from support.ledgers.events import NOON
from support.ledgers.facts import Facts

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))


class Steps:
    """A store that notes the calls; `rows` are old when it starts."""

    def __init__(self, rows: int = 0) -> None:
        self.calls: list[str] = []
        self.rows = rows
        self.tombstoned = 0
        self.error: Exception | None = None

    async def add_tombstones(
        self, policy: RetentionPolicy, status: Status, *, after: int
    ) -> TombstonePass:
        if status is Status.FAILED:
            self.calls.append("add_dead_letter_tombstones")
            return TombstonePass(0, None)
        self.calls.append("add_tombstones")
        if self.error is not None:
            raise self.error
        added, self.rows = min(self.rows, 1000), max(self.rows - 1000, 0)
        self.tombstoned += added
        return TombstonePass(added, after + 1000 if added else None)

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        self.calls.append("prune")
        return PruneResult(0, more=False, waiting=self.tombstoned > 0)

    async def purge(self, policy: RetentionPolicy) -> PurgeResult:
        self.calls.append("purge")
        return PurgeResult(0, 0)

    async def prune_fingerprints(self) -> int:
        self.calls.append("prune_fingerprints")
        return 0

    async def prune_quarantine(self, policy: RetentionPolicy) -> int:
        self.calls.append("prune_quarantine")
        return 0


class Sleeps(list[float]):
    """Long sleeps are noted and take no time; after `limit` of them the loop is cancelled."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    async def __call__(self, seconds: float) -> None:
        if seconds >= 1:
            if len(self) == self._limit:
                raise asyncio.CancelledError
            self.append(seconds)


async def run(store: Steps, facts: Facts, *, hours: float = 1, sleeps: int = 60) -> Sleeps:
    slept = Sleeps(sleeps)
    retention = Retention(
        cast("RetentionStore", store),
        POLICY,
        interval=timedelta(hours=hours),
        observe=facts,
        sleep=slept,
    )
    with suppress(asyncio.CancelledError):
        while True:
            await retention.tick_and_wait()
    return slept


def passes(store: Steps) -> int:
    return store.calls.count("purge")


# W11
async def test_a_pass_comes_at_the_start_and_after_every_interval() -> None:
    store = Steps()
    slept = await run(store, Facts(), hours=1, sleeps=120)
    assert set(slept) == {60.0}
    assert passes(store) == 3


# W11
async def test_an_interval_shorter_than_a_minute_is_kept() -> None:
    store = Steps()
    slept = await run(store, Facts(), hours=0.01, sleeps=4)
    assert slept == [36.0] * 4
    assert passes(store) == 5


# W11
async def test_between_passes_only_tombstoned_rows_are_pruned_every_minute() -> None:
    store = Steps(rows=5)
    await run(store, Facts(), sleeps=10)
    assert store.calls.count("prune") == 11
    idle = Steps()
    await run(idle, Facts(), sleeps=10)
    assert idle.calls.count("prune") == 1


# F36
async def test_a_pass_continues_until_nothing_is_left() -> None:
    store = Steps(rows=3500)
    facts = Facts()
    await run(store, facts, sleeps=0)
    assert store.calls.count("add_tombstones") == 5
    assert [fact.tombstoned for fact in facts.of(Pruned)] == [3500]


# F36
async def test_the_writer_is_left_to_others_for_four_fifths_of_the_time() -> None:
    pauses: list[float] = []
    ticks = iter(range(1000))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    retention = Retention(
        cast("RetentionStore", Steps(rows=1)),
        POLICY,
        interval=timedelta(hours=1),
        observe=Facts(),
        sleep=sleep,
        monotonic=lambda: float(next(ticks)),
    )
    await retention.prune()
    assert pauses == [4.0] * 7


# F36
async def test_beside_senders_retention_takes_a_hundredth_of_the_time_unless_it_is_late() -> None:
    pauses: list[float] = []
    ticks = iter(range(1000))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    retention = Retention(
        cast("RetentionStore", Steps(rows=1)),
        POLICY,
        interval=timedelta(seconds=14),
        observe=Facts(),
        recorded=count().__next__,
        sleep=sleep,
        monotonic=lambda: float(next(ticks)),
    )
    await retention.tick()
    assert pauses == [99.0, 99.0, *[4.0] * 5]


async def test_an_unavailable_store_is_tried_again_in_a_minute() -> None:
    store, facts = Steps(), Facts()
    store.error = Unavailable("the disk")  # the store reports its own outages
    assert await run(store, facts, sleeps=3) == [60.0] * 3
    assert facts == []


async def test_a_pass_that_fails_is_reported_to_its_supervisor() -> None:  # S26
    store, facts = Steps(), Facts()
    store.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        await run(store, facts)
    assert facts == [PruneFailed("a bug")]


async def test_a_cancelled_retention_stops() -> None:
    forever: Any = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await forever.wait()

    retention = Retention(
        cast("RetentionStore", Steps()),
        POLICY,
        interval=timedelta(hours=1),
        observe=Facts(),
        sleep=sleep,
    )
    task = asyncio.create_task(retention.tick_and_wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# N14
@pytest.mark.parametrize(
    ("status", "days", "until"),
    [
        (Status.FAILED, None, timedelta(days=30)),
        (Status.FAILED, 90, timedelta(days=90)),
        (Status.FAILED, 1, timedelta(days=20, hours=24)),
        (Status.COMPLETED, 90, timedelta(days=30)),
    ],
)
def test_an_event_is_kept_from_its_arrival_and_for_a_day_after_its_end(
    status: Status, days: int | None, until: timedelta
) -> None:
    keep = None if days is None else timedelta(days=days)
    empty = cast("dict[str, Any]", dict.fromkeys(EventRecord.__struct_fields__))
    ended = NOON + timedelta(days=20)
    event = EventRecord(**empty | {"status": status, "created_at": NOON, "processed_at": ended})
    assert replace(POLICY, keep_dead_letters=keep).kept_until(event) == NOON + until


@pytest.mark.parametrize(
    ("newest_age", "hours"),
    [(None, 0), (timedelta(hours=23), 0), (timedelta(days=-30), 0), (timedelta(days=30), 24)],
)
async def test_after_a_start_with_an_implausible_clock_nothing_is_deleted_for_a_day(
    newest_age: timedelta | None, hours: int
) -> None:  # S22
    store, facts, now = Steps(rows=5), Facts(), [1000.0]
    retention = Retention(
        cast("RetentionStore", store),
        POLICY,
        interval=timedelta(hours=1),
        observe=facts,
        sleep=Sleeps(1000),
        monotonic=lambda: now[0],
    )
    retention.pause_if_implausible(newest_age)
    if hours:
        assert facts == [RetentionPaused(30 * 86400.0, 86400.0)]
        now[0] += hours * 3600 - 1
        await retention.tick()
        assert store.calls == []
        now[0] += 1
    await retention.tick()
    assert "add_tombstones" in store.calls
