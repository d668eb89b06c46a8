"""`Submissions`: the events that handlers send with `tx.send` are recorded exactly once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from ackbox.model import Done, Moved, Outcome, ReceiptKind, SentEvent, make_sent_event
from support.ledgers.backends import Backend, record, restart
from support.ledgers.events import envelope, record_in
from support.time.clocks import ManualClock
from support.workers.queue_worker import OTHER, QueueWorker, done, retry_later

MIB = 1024 * 1024
BROKEN = "INSERT INTO nowhere VALUES (1)"


def sent(key: str = "follow-up", payload: Any = None, *, lane: str | None = None) -> SentEvent:
    return make_sent_event("step.two", payload, key=key, source="app", lane=lane)


def sending(*events: SentEvent, statement: str | None = None) -> Done:
    """Return the outcome of a run that sent these events."""
    effects = done(statement).effects if statement else ()
    return Done("handled", effects, retry_later("tx"), events)


async def send(backend: Backend, *events: SentEvent, key: str = "first") -> str:
    """Complete an event whose handler sends these events; return its id."""
    (handled,) = await record(backend, key)
    worker = QueueWorker(backend.store.queue)
    (claim,) = await worker.claim(ids=[handled.id])
    assert await worker.settle(claim, sending(*events)) == {claim.id: sending(*events)}
    return handled.id


async def move_all(backend: Backend) -> list[Moved]:
    batches = []
    while (moved := await backend.store.submissions.move()).envelopes:
        batches.append(moved)
    return batches


async def keys(backend: Backend) -> list[str]:
    return [row["idempotency_key"] for row in await backend.rows()]


async def left(backend: Backend) -> int:
    ((count,),) = await backend.fetch("SELECT count(*) FROM submissions")
    return int(count)


async def test_a_sent_event_is_recorded_with_all_its_fields(backend: Backend) -> None:
    parent = await send(backend, sent(payload={"n": 1}, lane="lane-1"))
    assert await keys(backend) == ["first"]
    (moved,) = await move_all(backend)
    row = (await backend.rows())[-1]
    assert {name: row[name] for name in ("source", "idempotency_key", "event_type", "lane")} == {
        "source": "app",
        "idempotency_key": "follow-up",
        "event_type": "step.two",
        "lane": "lane-1",
    }
    assert (row["payload"], row["content_type"]) == (b'{"n":1}', "application/json")
    assert (row["transport"], row["parent_id"], row["status"]) == ("app", parent, "pending")
    assert [receipt.kind for receipt in moved.receipts] == [ReceiptKind.NEW]
    assert [receipt.id for receipt in moved.receipts] == [row["id"]]
    assert await left(backend) == 0


async def test_a_moved_event_is_claimable(backend: Backend, me: QueueWorker) -> None:
    await send(backend, sent("a"), sent("b"))
    await move_all(backend)
    assert sorted(await me.keys()) == ["a", "b"]


async def test_bytes_are_kept_exactly(backend: Backend) -> None:
    await send(backend, sent(payload=b"\xff\x00not json"))
    await move_all(backend)
    row = (await backend.rows())[-1]
    assert (row["payload"], row["content_type"]) == (
        b"\xff\x00not json",
        "application/octet-stream",
    )


async def test_a_run_that_fails_sends_nothing(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "first")
    claim = await me.claim_one()
    written = await me.settle(claim, sending(sent(), statement=BROKEN))
    assert type(written[claim.id]) is type(retry_later())
    assert await left(backend) == 0


async def test_a_run_that_lost_its_claim_sends_nothing(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "first")
    stale = await me.claim_one()
    clock.advance(seconds=31)
    current = await QueueWorker(backend.store.queue, OTHER).claim_one()
    assert await me.settle(stale, sending(sent("stale"))) == {}
    await me.settle(current, sending(sent("current")))
    await move_all(backend)
    assert await keys(backend) == ["first", "current"]


async def test_a_settlement_that_is_repeated_sends_once(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "first")
    claim = await me.claim_one()
    for _ in range(2):
        assert claim.id in await me.settle(claim, sending(sent("a"), sent("b")))
        await move_all(backend)
    assert await keys(backend) == ["first", "a", "b"]
    assert {row["ingest_count"] for row in await backend.rows()} == {1}


async def test_one_settlement_of_many_runs_keeps_their_events_apart(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, *"abc")
    claims = {claim.idempotency_key: claim for claim in await me.claim()}
    outcomes: dict[str, Outcome] = {
        "a": sending(sent("from-a")),
        "b": sending(sent("from-b"), statement=BROKEN),
        "c": retry_later(),
    }
    await asyncio.gather(*(me.settle(claims[key], outcomes[key]) for key in "abc"))
    await move_all(backend)
    assert await keys(backend) == ["a", "b", "c", "from-a"]


async def test_a_known_key_is_a_duplicate(backend: Backend) -> None:
    await record_in(backend.store, [envelope("known", b"null", source="app", at=backend.clock())])
    await send(backend, sent("known"), sent("new"))
    (moved,) = await move_all(backend)
    assert [receipt.kind for receipt in moved.receipts] == [ReceiptKind.DUPLICATE, ReceiptKind.NEW]
    assert await left(backend) == 0


async def test_a_lane_keeps_the_order_in_which_its_events_were_sent(
    backend: Backend, me: QueueWorker
) -> None:
    names = [f"step-{n}" for n in range(8)]
    for name in names:
        await send(backend, sent(name, lane="lane"), key=f"sends-{name}")
    await asyncio.gather(*(backend.store.submissions.move() for _ in range(3)))
    await move_all(backend)
    ran = []
    for _ in names:
        claim = await me.claim_one()
        ran.append(claim.idempotency_key)
        await me.settle(claim, done())
    assert ran == names


async def test_movers_at_the_same_time_record_each_event_once(backend: Backend) -> None:
    for batch in range(4):
        events = [sent(f"{batch}-{n}") for n in range(50)]
        await send(backend, *events, key=f"first-{batch}")
    moves = await asyncio.gather(*(backend.store.submissions.move() for _ in range(4)))
    await move_all(backend)
    assert sum(len(moved.envelopes) for moved in moves) <= 200
    rows = await backend.rows()
    assert len(rows) == 204
    assert {row["ingest_count"] for row in rows} == {1}


async def test_a_move_is_bounded_in_bytes(backend: Backend) -> None:
    await send(backend, *(sent(f"large-{n}", bytes(5 * MIB)) for n in range(3)))
    assert [len(moved.envelopes) for moved in await move_all(backend)] == [2, 1]


async def test_the_next_process_moves_what_a_dead_process_left(backend: Backend) -> None:
    await send(backend, sent("a"), sent("b"))
    await restart(backend)
    await move_all(backend)
    assert await keys(backend) == ["first", "a", "b"]


async def test_an_event_that_was_sent_ends_the_waiting_at_once(backend: Backend) -> None:
    await move_all(backend)
    waiting = asyncio.ensure_future(backend.store.submissions.wait(timedelta(minutes=10)))
    await asyncio.sleep(0)
    assert not waiting.done()
    await send(backend, sent())
    await asyncio.wait_for(waiting, 5)


async def test_the_waiting_ends_at_its_time_out(backend: Backend) -> None:
    await move_all(backend)
    await asyncio.wait_for(backend.store.submissions.wait(timedelta(milliseconds=1)), 5)
    assert await backend.store.submissions.move() == Moved()


@pytest.mark.parametrize("sql", ["DELETE FROM {}submissions", "DROP TABLE {}submissions"])
async def test_users_sql_cannot_change_submissions(
    backend: Backend, me: QueueWorker, sql: str
) -> None:
    await record(backend, "first")
    claim = await me.claim_one()
    prefix = backend.events_table.removesuffix("events")
    written = await me.settle(claim, sending(sent(), statement=sql.format(prefix)))
    assert type(written[claim.id]) is type(retry_later())
