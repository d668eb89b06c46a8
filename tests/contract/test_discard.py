"""Discard: an operator gives an event up on purpose (N14)."""

import asyncio
from datetime import timedelta

import pytest

from ackbox.model import (
    DiscardKind,
    Envelope,
    EventId,
    Outcome,
    ReceiptKind,
    Release,
    ReplayKind,
    RetentionPolicy,
    Settlement,
    Snoozed,
    Status,
)
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, envelopes, record_in
from support.workers.event_runs import DEAD, DONE, claim, retry_later, settle, work

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))
PARKED = Release(parked=True)
LATER = retry_later(timedelta(hours=1))
SNOOZED = Snoozed(timedelta(hours=1))


async def discard(backend: Backend, *sent: Envelope) -> list[DiscardKind | None]:
    done = await backend.store.discard([item.id for item in sent], actor="tester")
    return [done.get(item.id) for item in sent]


async def row(backend: Backend, sent: Envelope) -> dict[str, object]:
    return next(row for row in await backend.rows() if row["id"] == sent.id)


async def due(backend: Backend) -> list[EventId]:
    """Claim the due events and return their ids."""
    return [claim.id for claim in await claim(backend.store)]


async def in_a_lane(backend: Backend, count: int) -> list[Envelope]:
    sent = [envelope(f"lane-{n}", lane="l") for n in range(count)]
    await record_in(backend.store, sent)
    return sent


# N14
@pytest.mark.parametrize("before", [None, LATER, SNOOZED, PARKED, DEAD])
async def test_a_discarded_event_is_completed_and_never_runs(
    backend: Backend, before: Outcome | None
) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    if before is not None:
        await work(backend.store, [sent], before)
    was = await row(backend, sent)
    assert await discard(backend, sent) == [DiscardKind.DISCARDED]
    now = await row(backend, sent)
    assert (now["status"], now["outcome"]) == (Status.COMPLETED, "discarded")
    assert (now["retry_after"], now["claimable_at"]) == (None, None)
    assert now["processed_at"] == now["updated_at"]
    kept = ("attempts", "run", "last_error", "error_code", "errors")
    assert [now[name] for name in kept] == [was[name] for name in kept]
    backend.clock.advance(days=1)
    assert await due(backend) == []


# N14
async def test_the_counts_by_status_stay_exact(backend: Backend) -> None:
    dead, waiting, running, done = sent = envelopes(4)
    await record_in(backend.store, sent)
    await work(backend.store, [dead], DEAD)
    await work(backend.store, [done], DONE)
    await claim(backend.store, running.id)
    await discard(backend, dead, waiting, running, done)
    counts = (await backend.reader.stats(backend.clock())).counts
    assert (counts[Status.PENDING], counts[Status.PROCESSING]) == (0, 1)
    assert (counts[Status.COMPLETED], counts[Status.FAILED]) == (3, 0)
    assert await backend.reader.waiting(backend.clock.now) == 0


# N14
async def test_a_running_event_is_not_discarded(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    claims = await claim(backend.store)
    before = await row(backend, sent)
    assert await discard(backend, sent) == [DiscardKind.RUNNING]
    assert await row(backend, sent) == before
    await settle(backend.store, claims)
    assert (await row(backend, sent))["outcome"] == "handled"


# N14
async def test_a_completed_event_is_left_as_it_is(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DONE)
    before = await row(backend, sent)
    backend.clock.advance(minutes=1)
    assert await discard(backend, sent) == [DiscardKind.COMPLETED]
    assert await row(backend, sent) == before


# N14
async def test_discarding_twice_discards_once(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    done = await asyncio.gather(discard(backend, sent), discard(backend, sent))
    assert sorted(kind or "" for (kind,) in done) == [DiscardKind.COMPLETED, DiscardKind.DISCARDED]


# N14, F17
async def test_a_stale_run_cannot_settle_a_discarded_event(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    (stale,) = await claim(backend.store)
    backend.clock.advance(minutes=10)
    (other,) = await claim(backend.store)
    await settle(backend.store, [other], LATER)
    await discard(backend, sent)
    before = await row(backend, sent)
    assert await backend.store.queue.settle([Settlement(stale, DONE)]) == {}
    await backend.store.queue.settle([Settlement(other, DEAD)])
    assert await backend.store.queue.renew([stale, other], lease=timedelta(minutes=1)) == set()
    assert await row(backend, sent) == before


# N14
@pytest.mark.parametrize("before", [None, LATER, SNOOZED, PARKED])
async def test_a_lane_continues_after_a_discarded_head(
    backend: Backend, before: Outcome | None
) -> None:
    first, second, third = await in_a_lane(backend, 3)
    if before is not None:
        await work(backend.store, [first], before)
    assert await discard(backend, first) == [DiscardKind.DISCARDED]
    for item in (second, third):
        (claimed,) = await claim(backend.store)
        assert claimed.id == item.id
        await settle(backend.store, [claimed])


# N14
async def test_a_discarded_event_in_the_middle_of_a_lane_is_skipped(backend: Backend) -> None:
    first, second, third = await in_a_lane(backend, 3)
    running = await claim(backend.store)
    assert [claim.id for claim in running] == [first.id]
    assert await discard(backend, second) == [DiscardKind.DISCARDED]
    assert await due(backend) == []
    await settle(backend.store, running)
    assert await due(backend) == [third.id]


# N14, F30
async def test_a_discarded_event_sent_again_is_a_duplicate(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await discard(backend, sent)
    (receipt,) = await record_in(backend.store, [envelope(sent.idempotency_key, sent.payload)])
    assert (receipt.kind, receipt.status) == (ReceiptKind.DUPLICATE, Status.COMPLETED)
    assert await due(backend) == []


# N14, N5
async def test_a_discarded_event_is_replayed_only_on_request(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await discard(backend, sent)
    refused = await backend.store.replay([sent.id], actor="tester")
    assert refused == {sent.id: ReplayKind.COMPLETED}
    replayed = await backend.store.replay([sent.id], actor="tester", completed=True)
    assert replayed == {sent.id: ReplayKind.REPLAYED}
    assert await due(backend) == [sent.id]


# N14, W11
async def test_retention_deletes_a_discarded_event_a_day_later(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    backend.clock.advance(days=31)
    assert (await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == 1
    await discard(backend, sent)
    backend.clock.advance(minutes=1)
    assert (await backend.store.prune(POLICY)).rows == 0
    backend.clock.advance(days=1)
    assert (await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == 1
    backend.clock.advance(minutes=1)
    assert (await backend.store.prune(POLICY)).rows == 1
    (receipt,) = await record_in(backend.store, [envelope(sent.idempotency_key, sent.payload)])
    assert (receipt.kind, receipt.status) == (ReceiptKind.DUPLICATE, Status.COMPLETED)


# N14
async def test_every_discard_is_in_the_audit(backend: Backend) -> None:
    dead, running, done = sent = envelopes(3)
    await record_in(backend.store, sent)
    await work(backend.store, [dead], DEAD)
    await work(backend.store, [done], DONE)
    await claim(backend.store, running.id)
    await discard(backend, dead, running, done)
    entries = {entry.event_id: entry for entry in (await backend.reader.audit(limit=10)).items}
    assert entries[dead.id].detail == {"did": "discarded", "was": "failed"}
    assert entries[running.id].detail == {"did": "running", "was": "processing"}
    assert entries[done.id].detail == {"did": "completed", "was": "completed"}
    assert {(e.actor, e.action, e.at) for e in entries.values()} == {
        ("tester", "discard", backend.clock.now)
    }


# N14
async def test_an_unknown_event_is_not_in_the_result(backend: Backend) -> None:
    assert await discard(backend, envelope("nobody")) == [None]


# N14
async def test_an_id_twice_in_one_call_counts_once(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    assert await discard(backend, sent, sent) == [DiscardKind.DISCARDED] * 2
    assert len((await backend.reader.audit(limit=10)).items) == 1
