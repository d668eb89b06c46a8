"""Replay: the only way to run a finished event again (L8, L11, F31, F32)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from ackbox.model import (
    Envelope,
    EventDetail,
    EventId,
    Outcome,
    ReceiptKind,
    Release,
    ReplayKind,
    RetentionPolicy,
    Settlement,
    Status,
)
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, envelopes, record_in
from support.workers.event_runs import DEAD, DONE, claim, retry_later, settle, work

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))
PARKED = Release(parked=True)


async def replay(
    backend: Backend, *sent: Envelope, completed: bool = False
) -> list[ReplayKind | None]:
    ids = [item.id for item in sent]
    done = await backend.store.replay(ids, actor="tester", completed=completed)
    return [done.get(item.id) for item in sent]


async def row(backend: Backend, sent: Envelope) -> dict[str, object]:
    return next(row for row in await backend.rows() if row["id"] == sent.id)


async def detail(backend: Backend, sent: Envelope) -> EventDetail:
    shown = await backend.reader.detail(sent.id)
    assert shown is not None
    return shown


async def due(backend: Backend) -> list[EventId]:
    """Claim the due events and return their ids."""
    return [claim.id for claim in await claim(backend.store)]


async def in_a_lane(backend: Backend, count: int) -> list[Envelope]:
    sent = [envelope(f"lane-{n}", lane="l") for n in range(count)]
    await record_in(backend.store, sent)
    return sent


# L11, F32
@pytest.mark.parametrize("outcome", [DONE, DEAD])
async def test_a_finished_event_runs_again_with_all_its_attempts(
    backend: Backend, outcome: Outcome
) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], outcome)
    assert await replay(backend, sent, completed=True) == [ReplayKind.REPLAYED]
    now = await row(backend, sent)
    assert (now["status"], now["attempts"], now["run"]) == (Status.PENDING, 0, 1)
    assert now["processed_at"] is None
    (reclaimed,) = await claim(backend.store)
    assert (reclaimed.id, reclaimed.attempts, reclaimed.run) == (sent.id, 1, 2)


# N5
async def test_a_completed_event_is_replayed_only_on_request(backend: Backend) -> None:
    dead, done = sent = envelopes(2)
    await record_in(backend.store, sent)
    await work(backend.store, [dead], DEAD)
    await work(backend.store, [done], DONE)
    before = await row(backend, done)
    assert await replay(backend, done, dead) == [ReplayKind.COMPLETED, ReplayKind.REPLAYED]
    assert await row(backend, done) == before
    (entry,) = (await backend.reader.audit(event_id=done.id, limit=9)).items
    assert entry.detail == {"did": "completed", "was": "completed"}
    assert await due(backend) == [dead.id]


# L8
async def test_a_dead_letter_sent_again_stays_a_dead_letter(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    (receipt,) = await record_in(backend.store, [envelope(sent.idempotency_key, sent.payload)])
    assert (receipt.kind, receipt.status) == (ReceiptKind.DUPLICATE, Status.FAILED)
    assert await due(backend) == []


# F31
async def test_an_event_that_waits_for_a_retry_is_due_now(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], retry_later(timedelta(hours=1)))
    assert await due(backend) == []
    assert await replay(backend, sent) == [ReplayKind.EXPEDITED]
    (claimed,) = await claim(backend.store)
    assert claimed.attempts == 2  # F32: an expedited retry keeps its spent attempts


# F31
async def test_a_running_event_is_not_replayed(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    claims = await claim(backend.store)
    before = await row(backend, sent)
    assert await replay(backend, sent) == [ReplayKind.RUNNING]
    assert await row(backend, sent) == before
    await settle(backend.store, claims)
    assert (await row(backend, sent))["status"] == Status.COMPLETED


# F31
async def test_a_replay_requested_twice_is_one_run(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    results = await asyncio.gather(replay(backend, sent), replay(backend, sent))
    assert sorted(kind or "" for (kind,) in results) == [ReplayKind.REPLAYED, ReplayKind.WAITING]
    assert await due(backend) == [sent.id]
    assert await due(backend) == []


# F31, F17
async def test_the_outcome_of_an_older_run_is_fenced_off(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    (stale,) = await claim(backend.store)
    backend.clock.advance(minutes=10)
    (other,) = await claim(backend.store)
    await settle(backend.store, [other], DEAD)
    await replay(backend, sent)
    assert await backend.store.queue.settle([Settlement(stale, DONE)]) == {}
    await claim(backend.store)
    assert await backend.store.queue.settle([Settlement(other, DONE)]) == {}
    assert (await row(backend, sent))["status"] == Status.PROCESSING


# F31
async def test_a_parked_event_is_unparked(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], PARKED)
    assert await due(backend) == []
    assert await replay(backend, sent) == [ReplayKind.UNPARKED]
    assert await due(backend) == [sent.id]


async def test_an_unknown_event_is_not_in_the_result(backend: Backend) -> None:
    assert await replay(backend, envelope("nobody")) == [None]


async def test_an_id_twice_in_one_call_counts_once(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    assert await replay(backend, sent, sent) == [ReplayKind.REPLAYED] * 2
    assert len((await backend.reader.audit(limit=10)).items) == 1


# F31
async def test_in_a_lane_a_replay_runs_before_later_events(backend: Backend) -> None:
    first, second, third = await in_a_lane(backend, 3)
    await work(backend.store, [first], DEAD)
    await replay(backend, first)
    order = []
    for _ in range(3):
        (claimed,) = await claim(backend.store)
        order.append(claimed.id)
        await settle(backend.store, [claimed])
    assert order == [first.id, second.id, third.id]


# F31
@pytest.mark.parametrize("end", [DONE, DEAD, retry_later(timedelta(hours=1)), Release()])
async def test_in_a_lane_a_replay_runs_after_the_running_event(
    backend: Backend, end: Outcome
) -> None:
    first, second, _ = await in_a_lane(backend, 3)
    await work(backend.store, [first], DEAD)
    running = await claim(backend.store)
    assert [claim.id for claim in running] == [second.id]
    await replay(backend, first)
    assert await due(backend) == []
    await settle(backend.store, running, end)
    backend.clock.advance(hours=2)
    assert await due(backend) == [first.id]  # and no other


# F31
async def test_in_a_lane_a_replay_runs_before_a_head_that_waits_for_a_retry(
    backend: Backend,
) -> None:
    first, second = await in_a_lane(backend, 2)
    await work(backend.store, [first], DEAD)
    await work(backend.store, [second], retry_later(timedelta(hours=1)))
    await replay(backend, first)
    (claimed,) = await claim(backend.store)
    assert claimed.id == first.id
    await settle(backend.store, [claimed])
    assert await due(backend) == []
    backend.clock.advance(hours=1)
    assert await due(backend) == [second.id]


# F31
async def test_an_expedited_event_does_not_overtake_the_head_of_its_lane(
    backend: Backend,
) -> None:
    first, second = await in_a_lane(backend, 2)
    await work(backend.store, [first], DEAD)
    await work(backend.store, [second], retry_later(timedelta(hours=1)))
    await replay(backend, first)
    assert await replay(backend, second) == [ReplayKind.EXPEDITED]
    assert await due(backend) == [first.id]


# F31
async def test_a_whole_lane_replayed_runs_in_its_order(backend: Backend) -> None:
    sent = await in_a_lane(backend, 5)
    for item in sent:
        await work(backend.store, [item], DEAD)
    await replay(backend, *reversed(sent))
    order = []
    while claims := await claim(backend.store):
        assert len(claims) == 1
        order.append(claims[0].id)
        await settle(backend.store, claims)
    assert order == [item.id for item in sent]


# F15
async def test_a_replayed_event_is_not_pruned(backend: Backend) -> None:
    (sent,) = envelopes(1)
    await record_in(backend.store, [sent])
    await work(backend.store, [sent], DEAD)
    backend.clock.advance(days=31)
    assert (await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == 1
    assert (await detail(backend, sent)).tombstoned_at == backend.clock.now
    await replay(backend, sent)
    assert (await detail(backend, sent)).tombstoned_at is None
    backend.clock.advance(minutes=1)
    assert (await backend.store.prune(POLICY)).rows == 0
    await work(backend.store, [sent])
    backend.clock.advance(hours=23)
    assert (await backend.store.prune(POLICY)).rows == 0
    assert (await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == 0


# L11
async def test_every_replay_is_in_the_audit(backend: Backend) -> None:
    dead, running = sent = envelopes(2)
    await record_in(backend.store, sent)
    await work(backend.store, [dead], DEAD)
    await claim(backend.store, running.id)
    await replay(backend, dead, running)
    entries = {e.event_id: e for e in (await backend.reader.audit(limit=10)).items}
    assert entries[dead.id].detail == {"did": "replayed", "was": "failed"}
    assert entries[running.id].detail == {"did": "running", "was": "processing"}
    assert {(e.actor, e.action, e.at) for e in entries.values()} == {
        ("tester", "replay", backend.clock.now)
    }


# S18
async def test_the_audit_keeps_the_actor_and_the_address_of_the_caller(
    backend: Backend,
) -> None:
    sent = envelope()
    await record_in(backend.store, [sent])
    await backend.store.replay([sent.id], actor="jo", peer="192.0.2.7")
    await backend.store.replay([sent.id], actor="cli")
    direct, remote = (await backend.reader.audit(limit=10)).items
    assert (remote.actor, remote.peer) == ("jo", "192.0.2.7")
    assert (direct.actor, direct.peer) == ("cli", None)


# L11
async def test_the_audit_is_read_in_pages_and_by_event(backend: Backend) -> None:
    sent = envelopes(5)
    await record_in(backend.store, sent)
    for item in sent:
        await replay(backend, item)
    first = await backend.reader.audit(limit=3)
    keep_after_end = await backend.reader.audit(limit=3, cursor=first.next)
    seen = [entry.event_id for entry in [*first.items, *keep_after_end.items]]
    assert seen == [item.id for item in reversed(sent)]
    assert keep_after_end.next is None
    (entry,) = (await backend.reader.audit(event_id=sent[2].id, limit=9)).items
    assert entry.event_id == sent[2].id


async def park(backend: Backend, sent: Sequence[Envelope]) -> None:
    await record_in(backend.store, sent)
    await work(backend.store, sent, PARKED)


async def test_parked_types_are_listed_once_each(backend: Backend) -> None:
    await park(backend, [envelope(f"a-{n}", event_type="a") for n in range(3)])
    await park(backend, [envelope("b", event_type="b", source="shop")])
    await record_in(backend.store, envelopes(3))
    types: list[tuple[str, str]] = []
    parked_type: tuple[str, str] | None = ("", "")
    while parked_type is not None:
        parked_type = await backend.reader.parked_type(parked_type)
        types += [parked_type] if parked_type is not None else []
    assert types == [("shop", "b"), ("webhooks", "a")]


async def test_parked_events_of_a_type_are_unparked(backend: Backend) -> None:
    wanted, other = envelope("a", event_type="a"), envelope("b", event_type="b")
    await park(backend, [wanted, other])
    assert await backend.store.unpark("webhooks", "a") == 1
    assert await backend.store.unpark("webhooks", "a") == 0
    assert await due(backend) == [wanted.id]


async def test_unparked_events_keep_their_position_in_the_lane(backend: Backend) -> None:
    first, second = [envelope(f"{n}", lane="l", event_type=f"t.{n}") for n in range(2)]
    await record_in(backend.store, [first, second])
    await work(backend.store, [first], PARKED)
    assert await due(backend) == []  # S10
    await backend.store.unpark("webhooks", "t.0")
    assert await due(backend) == [first.id]
    assert (await detail(backend, second)).behind is not None
