"""Leases and fencing: only the holder of a claim renews and settles it."""

from datetime import timedelta

import pytest

from ackbox.model import (
    Done,
    Outcome,
    Release,
    Settlement,
    Snoozed,
)
from support.ledgers.backends import Backend, record
from support.time.clocks import ManualClock
from support.workers.queue_worker import LEASE, QueueWorker, dead, done, retry_later

SECOND = timedelta(seconds=1)
OUTCOMES = [
    done(),
    Done("ignored"),
    done("INSERT INTO mine (id) VALUES ('stale')"),
    retry_later(),
    dead(),
    Release(),
    Release(parked=True),
    Snoozed(SECOND),
]


async def test_a_renewed_lease_lasts_from_now(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # F19
    await record(backend, "a")
    claim = await me.claim_one()
    for _ in range(5):
        clock.advance(seconds=20)
        assert await me.queue.renew([claim], lease=LEASE) == {claim.id}
        assert await other.claim() == []
    clock.advance(seconds=30)
    assert await other.keys() == ["a"]


async def test_a_lost_lease_cannot_be_renewed(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # F17
    await record(backend, "a", "b")
    stale = await me.claim()
    clock.advance(seconds=30)
    await other.claim_one(limit=1)
    before = await backend.rows()
    assert await me.queue.renew(stale, lease=timedelta(hours=1)) == {stale[1].id}
    after = await backend.rows()
    assert after[0] == before[0]
    assert after[1]["lease_until"] != before[1]["lease_until"]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
async def test_a_lost_lease_cannot_settle(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock, outcome: Outcome
) -> None:  # F17
    await backend.store.apply_tables(["CREATE TABLE mine (id TEXT)"])
    await record(backend, "a")
    stale = await me.claim_one()
    clock.advance(seconds=30)
    await other.claim_one()
    before = await backend.rows()
    clock.advance(seconds=1)
    assert dict(await me.settle(stale, outcome)) == {}
    assert await backend.rows() == before
    assert await backend.reader.query("SELECT * FROM mine", {}) == []


@pytest.mark.parametrize("stale_outcome", OUTCOMES, ids=repr)
@pytest.mark.parametrize("outcome", [done(), retry_later(), dead()], ids=repr)
async def test_a_stale_run_cannot_change_what_another_run_settled(
    backend: Backend,
    me: QueueWorker,
    other: QueueWorker,
    clock: ManualClock,
    outcome: Outcome,
    stale_outcome: Outcome,
) -> None:  # F17, F18
    await backend.store.apply_tables(["CREATE TABLE mine (id TEXT)"])
    await record(backend, "a")
    stale = await me.claim_one()
    clock.advance(seconds=30)
    await other.settle(await other.claim_one(), outcome)
    before = await backend.rows()
    clock.advance(seconds=1)
    assert dict(await me.settle(stale, stale_outcome)) == {}
    assert await me.queue.renew([stale], lease=LEASE) == set()
    assert await backend.rows() == before
    assert await backend.reader.query("SELECT * FROM mine", {}) == []


async def test_settling_again_changes_nothing_and_returns_the_same_outcomes(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await backend.store.apply_tables(["CREATE TABLE mine (id TEXT)"])
    await record(backend, "a", "b")
    effect = done("INSERT INTO mine (id) VALUES ('x')")
    first, second = await me.claim()
    settlements = [Settlement(first, effect), Settlement(second, retry_later())]
    written = await me.queue.settle(settlements)
    before = await backend.rows()
    clock.advance(seconds=1)
    assert dict(await me.queue.settle(settlements)) == dict(written)
    assert await backend.rows() == before
    assert await backend.reader.query("SELECT * FROM mine", {}) == [{"id": "x"}]


async def test_a_late_settle_is_valid_unless_the_event_was_taken_over(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    claim = await me.claim_one()
    clock.advance(hours=1)
    assert dict(await me.settle(claim, done())) == {claim.id: done()}


async def test_each_settlement_of_a_batch_is_checked_alone(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # F18
    await record(backend, *"abcd")
    claims = await me.claim()
    clock.advance(seconds=30)
    await other.claim(2)
    outcomes: list[Outcome] = [done(), retry_later(), done(), dead()]
    batch = [Settlement(c, o) for c, o in zip(claims, outcomes, strict=True)]
    written = await me.queue.settle(batch)
    assert dict(written) == {claims[2].id: outcomes[2], claims[3].id: outcomes[3]}
    assert [r["status"] for r in await backend.rows()] == [
        *("processing", "processing", "completed", "failed"),
    ]
