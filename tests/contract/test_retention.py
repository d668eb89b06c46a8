"""Retention deletes old finished events in two steps; keys stay known (W11, F15, F36)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ackbox.model import (
    Envelope,
    EventId,
    Outcome,
    ReceiptKind,
    Release,
    RetentionPolicy,
    Status,
    to_text,
)
from ackbox.ports import Store
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, envelopes, record_in
from support.workers.event_runs import DEAD, DONE, claim, retry_later, work

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))


async def add_tombstones(store: Store, policy: RetentionPolicy = POLICY) -> int:
    tombstoned = 0
    for status in (Status.COMPLETED, Status.FAILED):
        after: int | None = 0
        while after is not None:
            added = await store.add_tombstones(policy, status, after=after)
            tombstoned += added.rows
            after = added.next
    return tombstoned


async def prune(store: Store) -> int:
    """Delete all events that are prunable now."""
    rows = 0
    while True:
        removed = await store.prune(POLICY)
        rows += removed.rows
        if not removed.more:
            return rows


async def ids(backend: Backend) -> set[EventId]:
    return {row["id"] for row in await backend.rows()}


async def finished(backend: Backend, sent: Sequence[Envelope], outcome: Outcome = DONE) -> None:
    await record_in(backend.store, sent)
    await work(backend.store, sent, outcome)


# W11
@pytest.mark.parametrize("outcome", [DONE, DEAD])
async def test_old_finished_events_are_deleted(backend: Backend, outcome: Outcome) -> None:
    await finished(backend, envelopes(3), outcome)
    backend.clock.advance(days=31)
    assert await add_tombstones(backend.store) == 3
    backend.clock.advance(minutes=1)
    assert await prune(backend.store) == 3
    assert await ids(backend) == set()
    assert sum((await backend.reader.stats(backend.clock())).counts.values()) == 0


# N14
@pytest.mark.parametrize(("days", "dead"), [(10, True), (90, False)])
async def test_dead_letters_have_a_retention_of_their_own(
    backend: Backend, days: int, dead: bool
) -> None:
    policy = replace(POLICY, keep_dead_letters=timedelta(days=days))
    await finished(backend, envelopes(2, prefix="done"))
    await finished(backend, envelopes(3, prefix="dead"), DEAD)
    backend.clock.advance(days=days - 1)
    assert await add_tombstones(backend.store, policy) == (0 if dead else 2)
    backend.clock.advance(days=2)
    assert await add_tombstones(backend.store, policy) == 3
    backend.clock.advance(minutes=1)
    assert await prune(backend.store) == (3 if dead else 5)
    counts = (await backend.reader.stats(backend.clock())).counts
    assert (counts[Status.COMPLETED], counts[Status.FAILED]) == (2 if dead else 0, 0)


# N14, F36
async def test_a_pass_adds_a_thousand_tombstones_of_dead_letters_at_most(backend: Backend) -> None:
    await finished(backend, envelopes(1100), DEAD)
    backend.clock.advance(days=31)
    passes = [await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)]
    while (after := passes[-1].next) is not None:
        passes.append(await backend.store.add_tombstones(POLICY, Status.FAILED, after=after))
    assert sum(added.rows for added in passes) == 1100
    assert max(added.rows for added in passes) <= 1000


# N14
async def test_a_pass_over_completed_events_leaves_dead_letters(backend: Backend) -> None:
    await finished(backend, envelopes(3), DEAD)
    backend.clock.advance(days=31)
    assert (await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == 0
    assert (await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == 3


# W11
async def test_young_events_stay(backend: Backend) -> None:
    await finished(backend, envelopes(3))
    backend.clock.advance(days=29)
    assert await add_tombstones(backend.store) == 0


# W11, F15
async def test_pending_and_processing_events_are_never_deleted(backend: Backend) -> None:
    _, retrying, running, parked = sent = envelopes(4)
    await record_in(backend.store, sent)
    await work(backend.store, [retrying], retry_later(timedelta(days=90)))
    await work(backend.store, [parked], Release(parked=True))
    assert len(await claim(backend.store, running.id)) == 1
    backend.clock.advance(days=400)
    assert await add_tombstones(backend.store) == 0
    backend.clock.advance(days=1)
    assert await prune(backend.store) == 0
    assert await ids(backend) == {item.id for item in sent}


# W11
async def test_an_old_event_is_kept_for_a_day_after_its_end(backend: Backend) -> None:
    sent = envelopes(1)
    await record_in(backend.store, sent)
    backend.clock.advance(days=60)
    await work(backend.store, sent, DEAD)
    backend.clock.advance(hours=23)
    assert await add_tombstones(backend.store) == 0
    backend.clock.advance(hours=2)
    assert await add_tombstones(backend.store) == 1


# W11
async def test_a_row_is_deleted_a_minute_after_its_tombstone_was_added(backend: Backend) -> None:
    await finished(backend, envelopes(1))
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    backend.clock.advance(seconds=59)
    assert (await backend.store.prune(POLICY)).waiting
    assert len(await ids(backend)) == 1
    backend.clock.advance(seconds=1)
    removed = await backend.store.prune(POLICY)
    assert (removed.rows, removed.waiting) == (1, False)


# F15
@pytest.mark.parametrize("removed", [False, True])
async def test_a_key_is_known_by_its_tombstone(backend: Backend, removed: bool) -> None:
    first = envelope("k", b"first")
    await finished(backend, [first], DEAD)
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    if removed:
        backend.clock.advance(minutes=1)
        assert await prune(backend.store) == 1
    same, other, new = await record_in(
        backend.store, [envelope("k", b"first"), envelope("k", b"other"), envelope("new")]
    )
    assert (same.kind, same.id, same.status) == (ReceiptKind.DUPLICATE, first.id, Status.FAILED)
    assert same.created_at == first.received_at
    assert (other.kind, other.id) == (ReceiptKind.CONFLICT, first.id)
    assert new.kind is ReceiptKind.NEW


# F15
async def test_a_tombstone_belongs_to_one_source(backend: Backend) -> None:
    await finished(backend, [envelope("k")])
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    backend.clock.advance(minutes=1)
    await prune(backend.store)
    (receipt,) = await record_in(backend.store, [envelope("k", source="another")])
    assert receipt.kind is ReceiptKind.NEW


# F15
async def test_a_key_is_known_for_its_days_and_no_longer(backend: Backend) -> None:
    await finished(backend, [envelope("k")])
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    backend.clock.advance(hours=2)  # the days count from the deletion of the row
    await prune(backend.store)
    backend.clock.advance(days=7)
    assert (await backend.store.purge(POLICY)).tombstones == 0
    backend.clock.advance(seconds=1)
    assert (await backend.store.purge(POLICY)).tombstones == 1
    (receipt,) = await record_in(backend.store, [envelope("k")])
    assert receipt.kind is ReceiptKind.NEW


# F15
async def test_a_tombstone_stays_while_its_row_is_there(backend: Backend) -> None:
    await finished(backend, [envelope("k")])
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    backend.clock.advance(days=8)
    assert (await backend.store.purge(POLICY)).tombstones == 0
    assert await prune(backend.store) == 1


# F15
async def test_an_event_that_changed_after_its_tombstone_was_added_is_kept(
    backend: Backend,
) -> None:
    await finished(backend, [envelope("k")])
    backend.clock.advance(days=31)
    await add_tombstones(backend.store)
    backend.clock.advance(minutes=1)
    await backend.fetch(f"UPDATE events SET updated_at = '{to_text(backend.clock())}'")
    assert await prune(backend.store) == 0
    assert len(await ids(backend)) == 1
    assert await add_tombstones(backend.store) == 1  # the first was deleted


# F15
async def test_no_key_is_lost_between_row_and_tombstone(backend: Backend) -> None:
    sent = envelopes(200)
    await finished(backend, sent)
    backend.clock.advance(days=31)
    copies = [envelope(item.idempotency_key, item.payload) for item in sent]

    async def send(item: Envelope) -> ReceiptKind:
        (receipt,) = await record_in(backend.store, [item])
        return receipt.kind

    async def clean() -> None:
        await add_tombstones(backend.store)
        backend.clock.advance(minutes=2)
        await prune(backend.store)

    *kinds, _ = await asyncio.gather(*map(send, copies), clean())
    kinds += await asyncio.gather(*map(send, copies))
    assert set(kinds) == {ReceiptKind.DUPLICATE}


# F36
async def test_a_step_covers_a_thousand_rows_at_most(backend: Backend) -> None:
    await finished(backend, envelopes(2100))
    backend.clock.advance(days=31)
    passes = [await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)]
    while (after := passes[-1].next) is not None:
        passes.append(await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=after))
    assert sum(added.rows for added in passes) == 2100
    assert max(added.rows for added in passes) <= 1000
    backend.clock.advance(minutes=1)
    steps = [(await backend.store.prune(POLICY)).rows]
    while steps[-1]:
        steps.append((await backend.store.prune(POLICY)).rows)
    assert sum(steps) == 2100
    assert max(steps) <= 1000


# W11
async def test_an_event_from_the_future_does_not_end_the_pass(backend: Backend) -> None:
    """The clock was wrong while these events were recorded."""
    right = backend.clock.now
    backend.clock.advance(days=999)
    await record_in(backend.store, [envelope(f"w-{n}", at=backend.clock.now) for n in range(1000)])
    backend.clock.now = right
    await finished(backend, envelopes(5))
    backend.clock.advance(days=31)
    assert await add_tombstones(backend.store) == 5


# S18
async def test_old_rows_of_the_audit_are_deleted_a_batch_at_a_time(backend: Backend) -> None:
    sent = envelopes(1001)
    await record_in(backend.store, sent)
    await backend.store.replay([item.id for item in sent], actor="ann")
    backend.clock.advance(days=2)
    await backend.store.replay([sent[0].id], actor="bob")
    backend.clock.advance(days=29)
    batches = [(await backend.store.purge(POLICY)).audit for _ in range(3)]
    assert batches == [1000, 1, 0]
    assert [entry.actor for entry in (await backend.reader.audit(limit=9)).items] == ["bob"]


# S22
async def test_the_newest_age_follows_the_clock_of_retention(
    backend: Backend,
) -> None:
    reader = backend.reader
    assert (await reader.stats(backend.clock())).newest_age is None
    await finished(backend, envelopes(2))
    backend.clock.advance(days=31)
    age = (await reader.stats(backend.clock())).newest_age
    assert age is not None
    assert abs(age - timedelta(days=31)) < timedelta(minutes=1)
    assert await add_tombstones(backend.store) == 2
    backend.clock.advance(minutes=2)
    assert await prune(backend.store) == 2
    age = (await reader.stats(backend.clock())).newest_age  # only a tombstone is left
    assert age is not None
    assert age < timedelta(minutes=3)
