"""`EventQueue`: claims, leases, fencing, and the columns that each outcome writes."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from ackbox.model import (
    Caps,
    Claim,
    DeadLetter,
    Done,
    Envelope,
    EventId,
    Failure,
    Outcome,
    Release,
    ReplayKind,
    RetryLater,
    Settlement,
    Snoozed,
    from_text,
    make_failure,
)
from support.backends import Backend, Row
from support.clock import ManualClock
from support.events import NOON, envelope, record_in
from support.queue_worker import LEASE, ME, OTHER, QueueWorker, dead, done, retry_later

SECOND = timedelta(seconds=1)


@pytest.fixture
def me(backend: Backend) -> QueueWorker:
    return QueueWorker(backend.store.queue)


@pytest.fixture
def other(backend: Backend) -> QueueWorker:
    return QueueWorker(backend.store.queue, OTHER)


@pytest.fixture
def clock(backend: Backend) -> ManualClock:
    return backend.clock


async def record(backend: Backend, *keys: str, **more: Any) -> list[Envelope]:
    """Record one event for each key, in this order."""
    made = [envelope(key, at=backend.clock(), **more) for key in keys]
    await record_in(backend.store, made)
    return made


async def row(backend: Backend, key: str) -> Row:
    (matching,) = [row for row in await backend.rows() if row["idempotency_key"] == key]
    return matching


def errors(row: Row) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = json.loads(row["errors"])
    return kept


def without(row: Row, *columns: str) -> Row:
    return {name: value for name, value in row.items() if name not in columns}


# --- claims


async def test_the_event_that_is_due_longest_is_claimed_first(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a", "b")
    await me.settle(await me.claim_one(limit=1), retry_later(after=5 * SECOND))
    clock.advance(seconds=2)
    await record(backend, "c")
    clock.advance(seconds=10)
    assert await me.keys() == ["b", "c", "a"]


async def test_a_claim_never_exceeds_its_limit(backend: Backend, me: QueueWorker) -> None:
    await record(backend, *"abcde")
    assert await me.keys(2) == ["a", "b"]
    assert await me.keys(2) == ["c", "d"]
    assert await me.keys(2) == ["e"]
    assert await me.keys(2) == []


async def test_a_claim_has_every_field_of_the_envelope(backend: Backend, me: QueueWorker) -> None:
    sent = envelope(
        "k",
        b"\x00not json\xff",
        event_type="invoice.paid",
        headers='{"x-topic":"a"}',
        content_type="text/plain",
        lane="c1",
        source_sequence=7,
        source_emitted_at=NOON,
        request_id="r-1",
    )
    await record_in(backend.store, [sent])
    claim = await me.claim_one()
    given = {name: getattr(sent, name) for name in Claim.__struct_fields__ if hasattr(sent, name)}
    assert {name: getattr(claim, name) for name in given} == given
    assert (claim.run, claim.attempts, claim.unsettled) == (1, 1, 0)
    assert claim.created_at == NOON


@pytest.mark.parametrize("size", [0, 65_535, 65_536, 65_537, 900_000])
async def test_a_payload_of_any_size_is_claimed_whole(
    backend: Backend, me: QueueWorker, size: int
) -> None:
    payload = bytes(n % 251 for n in range(size))
    await record_in(backend.store, [envelope("k", payload), envelope("small", b"s")])
    assert [claim.payload for claim in await me.claim()] == [payload, b"s"]


async def test_a_claim_marks_the_row_for_the_duration_of_the_lease(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    before = await row(backend, "a")
    clock.advance(seconds=3)
    await me.claim_one()
    after = await row(backend, "a")
    assert (after["status"], after["processor_id"]) == ("processing", ME)
    assert from_text(after["lease_until"]) == clock() + LEASE
    assert from_text(after["updated_at"]) == clock()
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == {
        *("status", "processor_id", "lease_until", "claimable_at", "updated_at"),
        *("run", "attempts"),
    }


async def test_a_claimed_event_is_not_claimed_again_during_its_lease(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # P3
    await record(backend, "a")
    await me.claim_one()
    clock.advance(seconds=29.999)
    assert await other.claim() == []


async def test_concurrent_claims_share_the_events(backend: Backend, me: QueueWorker) -> None:  # P3
    await record(backend, *(f"k{n}" for n in range(60)))
    taken = await asyncio.gather(*(me.claim(7) for _ in range(12)))
    keys = [claim.idempotency_key for claims in taken for claim in claims]
    assert sorted(keys) == sorted(f"k{n}" for n in range(60))


async def test_an_expired_lease_is_taken_over(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # W3, F5
    await record(backend, "a")
    first = await me.claim_one()
    clock.advance(seconds=30)
    second = await other.claim_one()
    assert (second.run, second.attempts, second.unsettled) == (
        2,
        1,
        1,
    )  # S9: the attempt was refunded
    assert (await row(backend, "a"))["processor_id"] == OTHER
    assert first.id == second.id


async def test_a_restart_does_not_bring_a_retry_forward(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W4, F4
    await record(backend, "a")
    await me.settle(await me.claim_one(), retry_later(after=10 * SECOND))
    await backend.store.recover()
    clock.advance(seconds=9.9)
    assert await me.claim() == []
    clock.advance(seconds=0.1)
    assert await me.keys() == ["a"]


async def test_a_crash_refunds_the_attempt_unless_the_run_was_a_suspects(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9, F23
    """An event that kills its process has `MAX_ATTEMPTS` + 2 runs, and four with one attempt."""
    await record(backend, "a")
    counts = []
    for _ in range(6):
        claim = await me.claim_any()
        counts.append((claim.run, claim.attempts, claim.unsettled))
        clock.advance(seconds=31)
    assert counts == [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 2, 3), (5, 3, 4), (6, 4, 5)]


async def test_run_goes_up_at_every_claim_and_never_down(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    runs = []
    for outcome in (
        Release(),
        retry_later(after=SECOND),
        None,
        Release(),
        retry_later(after=SECOND),
        None,
    ):
        claim = await me.claim_any()
        runs.append(claim.run)
        if outcome is None:
            clock.advance(seconds=31)
        else:
            await me.settle(claim, outcome)
            clock.advance(seconds=2)
    assert runs == [1, 2, 3, 4, 5, 6]


async def test_attempts_count_claims_and_a_release_refunds_one(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # F32
    await record(backend, "a")
    attempts = []
    for outcome in (Release(), retry_later(after=SECOND), Release(), retry_later(after=SECOND)):
        claim = await me.claim_one()
        attempts.append(claim.attempts)
        await me.settle(claim, outcome)
        clock.advance(seconds=2)
    assert attempts == [1, 1, 2, 2]
    assert (await row(backend, "a"))["attempts"] == 2


async def test_unsettled_counts_take_overs_in_a_row(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    claims = []
    for _ in range(4):
        claims.append(await me.claim_any())
        clock.advance(seconds=31)
    await me.settle(claims[-1], retry_later(after=SECOND))
    assert (await row(backend, "a"))["unsettled"] == 0
    clock.advance(seconds=2)
    claims.append(await me.claim_one())
    assert [claim.unsettled for claim in claims] == [0, 1, 2, 3, 0]


# --- leases and fencing


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


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
async def test_a_lost_lease_cannot_settle(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock, outcome: Outcome
) -> None:  # F17
    await backend.store.apply_schema(["CREATE TABLE mine (id TEXT)"])
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
    await backend.store.apply_schema(["CREATE TABLE mine (id TEXT)"])
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
    await backend.store.apply_schema(["CREATE TABLE mine (id TEXT)"])
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


# --- the columns that each outcome writes


SETTLED = ("processor_id", "lease_until", "updated_at", "claimable_at", "status", "outcome")


async def settle_one(
    backend: Backend, me: QueueWorker, clock: ManualClock, outcome: Outcome
) -> tuple[Claim, Row, Row]:
    """Settle one event; return its claim, its row during the run, and its row after."""
    await record(backend, "a")
    claim = await me.claim_one()
    running = await row(backend, "a")
    clock.advance(seconds=1)
    assert dict(await me.settle(claim, outcome)) == {claim.id: outcome}
    after = await row(backend, "a")
    assert (after["processor_id"], after["lease_until"], after["unsettled"]) == (None, None, 0)
    assert from_text(after["updated_at"]) == clock()
    return claim, running, after


@pytest.mark.parametrize("name", ["handled", "ignored"])
async def test_done_completes(
    backend: Backend, me: QueueWorker, clock: ManualClock, name: str
) -> None:
    _, running, after = await settle_one(backend, me, clock, Done(name))
    assert (after["status"], after["outcome"], after["claimable_at"]) == ("completed", name, None)
    assert from_text(after["processed_at"]) == clock()
    assert without(after, *SETTLED, "processed_at") == without(running, *SETTLED, "processed_at")


async def test_a_retry_waits_and_keeps_its_error(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W10, L10
    _, running, after = await settle_one(backend, me, clock, retry_later(after=10 * SECOND))
    assert (after["status"], after["outcome"]) == ("pending", "retry")
    assert from_text(after["retry_after"]) == clock() + 10 * SECOND
    assert after["claimable_at"] == after["retry_after"]
    assert (after["last_error"], after["error_code"]) == ("ValueError: boom", "ValueError")
    (entry,) = errors(await row(backend, "a"))
    assert entry == {
        "at": after["updated_at"],
        "attempt": 1,
        "run": 1,
        "code": "ValueError",
        "error": "ValueError: boom",
    }
    written = (*SETTLED, "retry_after", "last_error", "error_code", "errors")
    assert without(after, *written) == without(running, *written)


async def test_a_dead_letter_is_kept_and_never_claimed_again(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W10, L8
    _, running, after = await settle_one(backend, me, clock, dead())
    assert (after["status"], after["outcome"], after["claimable_at"]) == ("failed", "dead", None)
    assert (after["last_error"], after["error_code"]) == ("no use", "Dead")
    assert from_text(after["processed_at"]) == clock()
    written = (*SETTLED, "processed_at", "last_error", "error_code", "errors")
    assert without(after, *written) == without(running, *written)
    clock.advance(days=365)
    await record(backend, "a")  # L8: the source sends it again
    await backend.store.recover()
    assert await me.claim() == []
    assert (await row(backend, "a"))["status"] == "failed"


async def test_a_release_restores_every_column_but_the_run(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    before = await row(backend, "a")
    claim = await me.claim_one()
    clock.advance(seconds=1)
    await me.settle(claim, Release())
    after = await row(backend, "a")
    assert without(after, "run", "updated_at") == without(before, "run", "updated_at")
    assert after["run"] == 1
    assert await me.keys() == ["a"]


async def test_a_release_keeps_a_retry_due(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a", "b")
    await me.settle(await me.claim_one(limit=1), retry_later(after=SECOND))
    await me.settle(await me.claim_one(limit=1), done())
    clock.advance(seconds=1)
    await me.settle(await me.claim_one(), Release())
    after = await row(backend, "a")
    assert from_text(after["claimable_at"]) == clock()
    assert (after["attempts"], after["last_error"]) == (1, "ValueError: boom")


async def test_a_release_may_have_a_delay(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    await me.settle(await me.claim_one(), Release(delay=SECOND))
    assert await me.claim() == []
    assert (await row(backend, "a"))["retry_after"] is None
    clock.advance(seconds=1)
    assert (await me.claim_one()).attempts == 1


async def test_a_parked_event_waits_for_a_handler(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # F22
    _, _, after = await settle_one(backend, me, clock, Release(parked=True))
    assert (after["status"], after["outcome"], after["attempts"]) == ("pending", "parked", 0)
    assert after["claimable_at"] is None
    clock.advance(days=1)
    assert await me.claim() == []


async def test_a_snooze_waits_and_refunds_its_attempt(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # N17
    _, running, after = await settle_one(backend, me, clock, Snoozed(10 * SECOND, "busy"))
    assert (after["status"], after["outcome"], after["attempts"]) == ("pending", "snoozed", 0)
    assert from_text(after["retry_after"]) == clock() + 10 * SECOND
    assert after["claimable_at"] == after["retry_after"]
    written = (*SETTLED, "retry_after", "attempts")
    assert without(after, *written) == without(running, *written)
    assert await me.claim() == []
    assert await backend.reader.waiting(clock()) == 0
    clock.advance(seconds=10)
    again = await me.claim_one()
    assert (again.attempts, again.run, again.replayed_at) == (1, 2, None)


async def test_a_snoozed_head_blocks_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # N17
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), Snoozed(10 * SECOND))
    await record(backend, "b1", lane="b")
    assert await me.keys() == ["b1"]
    clock.advance(seconds=10)
    assert await me.keys() == ["a1"]


async def test_a_replay_makes_a_snoozed_event_due_and_is_recorded(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # N17, F31
    (sent,) = await record(backend, "a")
    await me.settle(await me.claim_one(), Snoozed(timedelta(days=3)))
    clock.advance(seconds=5)
    done_to = await backend.store.replay([sent.id], actor="tester")
    assert done_to == {sent.id: ReplayKind.EXPEDITED}
    claim = await me.claim_one()
    assert (claim.attempts, claim.replayed_at) == (1, clock())
    await me.settle(claim, dead())
    clock.advance(seconds=5)
    await backend.store.replay([sent.id], actor="tester")
    assert (await me.claim_one()).replayed_at == clock()


async def test_the_last_ten_errors_are_kept(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W10
    await record(backend, "a")
    for n in range(12):
        claim = await me.claim_one()
        await me.settle(claim, retry_later(f"E{n}", after=SECOND) if n < 11 else dead("last"))
        clock.advance(seconds=1)
    kept = [error["code"] for error in errors(await row(backend, "a"))]
    assert kept == [*(f"E{n}" for n in range(2, 11)), "Dead"]
    assert (await row(backend, "a"))["last_error"] == "last"


@pytest.mark.parametrize(
    "text",
    ["x" * 9000, "€" * 3000, "a\0b\udc80c", "\ud800" * 2000, "quote ' \" \\ \n {}", ""],
    ids=["long", "wide", "nul and surrogate", "only surrogates", "quotes", "empty"],
)
async def test_an_error_text_of_any_kind_is_kept_in_4_kib(
    backend: Backend, me: QueueWorker, text: str
) -> None:  # W10
    await record(backend, "a")
    failure = make_failure(text, text)
    claim = await me.claim_one()
    await me.settle(claim, RetryLater(failure, SECOND))
    stored = (await row(backend, "a"))["last_error"]
    clean = text.replace("\0", "").encode("utf-8", "ignore").decode()
    assert len(stored.encode()) <= 4096
    assert clean.startswith(stored)
    assert len(stored.encode()) > 4092 or stored == clean
    assert [error["error"] for error in errors(await row(backend, "a"))] == [stored]


async def test_a_failed_run_keeps_its_traceback(backend: Backend, me: QueueWorker) -> None:  # N2
    await record(backend, "a")
    await me.settle(await me.claim_one(), RetryLater(traced("first"), timedelta(0)))
    await me.settle(await me.claim_one(), RetryLater(make_failure("boom", "E"), timedelta(0)))
    await me.settle(await me.claim_one(), DeadLetter(traced("last")))
    kept = errors(await row(backend, "a"))
    assert [error.get("traceback") for error in kept] == ["first", None, "last"]
    assert "traceback" not in kept[1]


async def test_the_last_three_tracebacks_are_kept(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # N2
    await record(backend, "a")
    for n in range(12):
        claim = await me.claim_one()
        ended = RetryLater(traced(f"T{n}"), SECOND) if n < 11 else DeadLetter(traced("T11"))
        await me.settle(claim, ended)
        clock.advance(seconds=1)
    kept = [error.get("traceback") for error in errors(await row(backend, "a"))]
    assert kept == [None] * 7 + ["T9", "T10", "T11"]


@pytest.mark.parametrize(
    "text",
    ["x" * 9000, "€" * 3000, "a\0b\udc80c", "\ud800" * 2000, "quote ' \" \\ \n {}", ""],
    ids=["long", "wide", "nul and surrogate", "only surrogates", "quotes", "empty"],
)
async def test_a_traceback_of_any_kind_is_kept_in_4_kib(
    backend: Backend, me: QueueWorker, text: str
) -> None:  # N2
    await record(backend, "a")
    await me.settle(await me.claim_one(), DeadLetter(traced(text)))
    (error,) = errors(await row(backend, "a"))
    stored = error["traceback"]
    clean = text.replace("\0", "").encode("utf-8", "ignore").decode()
    assert clean.startswith(stored)
    assert len(stored.encode()) > 4092 or stored == clean
    assert len(stored.encode()) <= 4096


async def test_failures_settled_together_keep_their_own_tracebacks(
    backend: Backend, me: QueueWorker
) -> None:  # N2
    await record(backend, "a", "b", "c")
    claims = await me.claim()
    failures = {"a": traced("of a"), "b": make_failure("boom", "E"), "c": traced("of c")}
    ended = [
        Settlement(item, RetryLater(failures[item.idempotency_key], SECOND)) for item in claims
    ]
    await me.queue.settle(ended)
    kept = {key: errors(await row(backend, key))[0].get("traceback") for key in "abc"}
    assert kept == {"a": "of a", "b": None, "c": "of c"}


def traced(text: str) -> Failure:
    return make_failure("boom", "E", "ship (shop.py:12)", text)


async def test_the_location_of_a_failure_is_only_logged(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a")
    await me.settle(await me.claim_one(), DeadLetter(Failure("boom", "E", "ship (shop.py:12)")))
    assert "shop.py" not in str(await row(backend, "a"))


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=-5)])
async def test_a_delay_past_the_last_date_is_cut(
    backend: Backend, me: QueueWorker, clock: ManualClock, delay: timedelta
) -> None:
    await record(backend, "a")
    await me.settle(await me.claim_one(), retry_later(after=delay))
    due = from_text((await row(backend, "a"))["retry_after"])
    assert clock() <= due < clock() + timedelta(days=4000)


# --- lanes


async def test_in_a_lane_only_the_oldest_can_be_claimed(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", "a3", lane="a")
    await record(backend, "b1", "b2", lane="b")
    await record(backend, "free")
    assert await me.keys() == ["a1", "b1", "free"]
    assert await me.keys() == []


async def test_a_lane_continues_when_its_head_is_done(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", "a3", lane="a")
    for expected in ("a1", "a2", "a3"):
        claim = await me.claim_one()
        assert claim.idempotency_key == expected
        await me.settle(claim, done())
    await record(backend, "a4", lane="a")  # into a lane whose head is finished
    assert await me.keys() == ["a4"]


async def test_a_retrying_head_blocks_only_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), retry_later(after=10 * SECOND))
    await record(backend, "a3", lane="a")
    await record(backend, "b1", lane="b")
    assert await me.keys() == ["b1"]
    clock.advance(seconds=10)
    assert await me.keys() == ["a1"]


async def test_a_lane_continues_after_a_dead_head(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), dead())
    assert await me.keys() == ["a2"]


async def test_a_parked_head_blocks_its_lane_until_it_is_unparked(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S10
    await record(backend, "a1", lane="a", event_type="unknown")
    await record(backend, "a2", lane="a")
    await me.settle(await me.claim_one(), Release(parked=True))
    await record(backend, "a3", lane="a")
    await record(backend, "b1", lane="b")
    await me.settle(await me.claim_one(), done())  # b1
    clock.advance(days=1)
    await backend.store.recover()
    assert await backend.store.unpark("webhooks", "webhook") == 0
    assert await me.keys() == []
    assert await backend.store.unpark("webhooks", "unknown") == 1
    for expected in ("a1", "a2", "a3"):
        claim = await me.claim_one()
        assert claim.idempotency_key == expected
        await me.settle(claim, done())


async def test_an_older_event_that_is_replayed_runs_before_a_parked_head(
    backend: Backend, me: QueueWorker
) -> None:  # S10, F31
    first, _ = await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), dead())
    await me.settle(await me.claim_one(), Release(parked=True))
    await backend.store.replay([first.id], actor="tester")
    await me.settle(await me.claim_one(), done())
    assert await me.keys() == []
    assert await backend.store.unpark("webhooks", "webhook") == 1
    assert await me.keys() == ["a2"]


async def test_a_released_head_comes_first_again(backend: Backend, me: QueueWorker) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.settle(await me.claim_one(), Release())
    assert await me.keys() == ["a1"]


async def test_a_taken_over_head_still_blocks_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a1", "a2", lane="a")
    await me.claim_one()
    clock.advance(seconds=30)
    assert await me.keys() == ["a1"]
    assert await me.keys() == []


async def test_a_stale_settle_frees_no_lane(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # F17
    await record(backend, "a1", "a2", lane="a")
    stale = await me.claim_one()
    clock.advance(seconds=30)
    await other.claim_one()
    await me.settle(stale, done())
    assert await me.claim() == []


async def test_equal_lane_names_of_two_sources_are_two_lanes(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, "1", lane="a", source="x")
    await record(backend, "1", lane="a", source="y")
    assert len(await me.claim()) == 2


class LaneWorker:
    """Notes the order in which the events of a lane were done; no two may run at once."""

    def __init__(self, backend: Backend, me: QueueWorker) -> None:
        self.order: dict[str, list[str]] = {"a": [], "b": []}
        self._backend = backend
        self._me = me
        self._running: set[str] = set()

    async def work(self) -> None:
        while claims := await self._me.claim(2) or await self._claim_until_all_settled():
            for claim in claims:
                await self._run(claim)

    async def _claim_until_all_settled(self) -> list[Claim]:
        while any(r["status"] in ("pending", "processing") for r in await self._backend.rows()):
            if claims := await self._me.claim(2):
                return claims
        return []

    async def _run(self, claim: Claim) -> None:
        assert claim.lane is not None
        assert claim.lane not in self._running
        self._running.add(claim.lane)
        await asyncio.sleep(0)
        self._running.remove(claim.lane)
        if claim.run == 1 and claim.idempotency_key.endswith("5"):
            await self._me.settle(claim, retry_later(after=timedelta(0)))
        else:
            self.order[claim.lane].append(claim.idempotency_key)
            await self._me.settle(claim, done())


async def test_a_lane_keeps_its_order_under_concurrency(backend: Backend, me: QueueWorker) -> None:
    async def feed(lane: str) -> None:
        for n in range(20):
            await record(backend, f"{lane}{n:02}", lane=lane)

    lanes = LaneWorker(backend, me)
    await asyncio.gather(feed("a"), feed("b"))
    await asyncio.gather(*(lanes.work() for _ in range(4)))
    assert lanes.order == {lane: [f"{lane}{n:02}" for n in range(20)] for lane in "ab"}


# --- fairness between sources


async def test_while_others_wait_no_source_gets_more_than_its_share(
    backend: Backend, me: QueueWorker
) -> None:  # F24
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    await record(backend, *(f"y{n}" for n in range(3)), source="y")
    taken = await me.keys(20, caps=Caps(share=5, held={}))
    assert sorted(taken) == ["x0", "x1", "x2", "x3", "x4", "y0", "y1", "y2"]


async def test_held_claims_count_against_the_share_of_their_source(
    backend: Backend, me: QueueWorker
) -> None:  # F24
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    await record(backend, *(f"y{n}" for n in range(9)), source="y")
    caps = Caps(share=5, held={"x": 4, "y": 7})
    assert await me.keys(20, caps=caps) == ["x0"]


async def test_a_source_alone_gets_all_up_to_its_cap(backend: Backend, me: QueueWorker) -> None:
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    assert len(await me.claim(20, caps=Caps(share=5, held={}))) == 20
    held = {"x": 20}
    assert len(await me.claim(20, caps=Caps(share=5, held=held, alone=23))) == 3


async def test_the_source_that_waits_longest_goes_first(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "z1", source="z")
    clock.advance(seconds=1)
    await record(backend, "a1", "a2", source="a")
    assert await me.keys(2, caps=Caps(share=5, held={})) == ["z1", "a1"]


# --- suspects


async def crash(clock: ManualClock) -> None:
    clock.advance(seconds=31)


async def make_suspects(backend: Backend, me: QueueWorker, clock: ManualClock, *keys: str) -> None:
    await record(backend, *keys)
    for _ in range(2):
        assert len(await me.claim()) == len(keys)
        await crash(clock)


async def test_events_whose_last_two_runs_crashed_are_claimed_one_by_one(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9, F23
    await make_suspects(backend, me, clock, *"abc")
    order = []
    while (suspect := await me.queue.suspect()) is not None:
        assert (suspect.source, suspect.event_type) == ("webhooks", "webhook")
        assert (suspect.attempts, suspect.unsettled) == (1, 2)
        claim = await me.claim_any()
        assert (claim.id, claim.attempts, claim.unsettled) == (suspect.id, 1, 2)
        order.append(claim.idempotency_key)
        await me.settle(claim, done())
    assert order == ["a", "b", "c"]


async def test_the_suspect_with_the_fewest_unsettled_runs_comes_first(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9, F58: a suspect that must run alone makes others wait
    await make_suspects(backend, me, clock, *"abc")
    assert (await me.claim_any()).idempotency_key == "a"
    await crash(clock)
    order = []
    while (suspect := await me.queue.suspect()) is not None:
        claim = await me.claim_any()
        assert (claim.attempts, claim.unsettled) == (suspect.attempts, suspect.unsettled)
        order.append((claim.idempotency_key, claim.unsettled))
        await me.settle(claim, done())
    assert order == [("b", 2), ("c", 2), ("a", 3)]


async def test_suspects_delay_no_ordinary_event(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9
    await make_suspects(backend, me, clock, *"abc")
    b, c = await record(backend, "new", "other")
    assert await me.keys(1) == ["new"]
    assert await me.keys(ids=[c.id, b.id]) == ["other"]
    assert await me.claim() == []


async def test_a_suspect_that_runs_or_waits_is_not_due(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # S9
    await make_suspects(backend, me, clock, "a")
    suspect = await me.queue.suspect()
    assert suspect is not None
    claim = await me.claim_any()
    assert await other.queue.suspect() is None
    assert await other.queue.claim_suspect(OTHER, suspect.id, lease=LEASE) is None
    await me.settle(claim, Release(delay=10 * SECOND))
    assert await other.queue.suspect() is None
    clock.advance(seconds=10)
    assert (await other.queue.suspect()) == suspect


async def test_only_one_of_two_workers_claims_a_suspect(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # S9
    await make_suspects(backend, me, clock, "a")
    suspect = await me.queue.suspect()
    assert suspect is not None
    taken = await asyncio.gather(
        *(each.queue.claim_suspect(each.name, suspect.id, lease=LEASE) for each in (me, other))
    )
    assert len([claim for claim in taken if claim is not None]) == 1


async def test_an_event_that_is_no_suspect_cannot_be_claimed_as_one(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9
    (event,) = await record(backend, "a")
    assert await me.queue.claim_suspect(ME, event.id, lease=LEASE) is None
    assert await me.queue.claim_suspect(ME, EventId("nobody"), lease=LEASE) is None


@pytest.mark.parametrize("crashes", [1, 2, 3, 5])
async def test_a_released_suspect_stays_a_suspect(
    backend: Backend, me: QueueWorker, clock: ManualClock, crashes: int
) -> None:  # S9
    """Otherwise an event that kills its process and is sometimes released would never run out of
    attempts."""
    await record(backend, "a")
    for _ in range(crashes):
        await me.claim_any()
        await crash(clock)
    claim = await me.claim_any()
    await me.settle(claim, Release())
    kept = min(crashes, 2)
    assert (await row(backend, "a"))["unsettled"] == kept
    again = await me.claim_any()
    assert (again.attempts, again.unsettled) == (claim.attempts, kept)


async def test_a_suspect_blocks_its_lane(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9
    await record(backend, "a1", "a2", lane="a")
    for _ in range(2):
        await me.claim_one()
        await crash(clock)
    assert await me.claim() == []
    await me.settle(await me.claim_any(), done())
    assert await me.keys() == ["a2"]


# --- by id


async def test_a_claim_by_id_claims_only_these_events(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    a, b, c, later = await record(backend, "a", "b", "c", "later")
    await me.settle(await me.claim_one(ids=[later.id]), retry_later(after=10 * SECOND))
    wanted = [c.id, later.id, EventId("nobody"), a.id]
    assert sorted(await me.keys(ids=wanted)) == ["a", "c"]
    assert await me.keys(ids=[a.id]) == []
    assert await me.keys(1, ids=[b.id, later.id]) == ["b"]


async def test_a_claim_by_id_respects_its_limit_and_lanes(
    backend: Backend, me: QueueWorker
) -> None:
    made = await record(backend, "a1", "a2", lane="a") + await record(backend, "b", "c")
    ids = [item.id for item in made]
    assert await me.keys(2, ids=ids) == ["a1", "b"]
    assert await me.keys(2, ids=ids) == ["c"]


async def test_a_claim_by_id_claims_no_suspect(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9
    (suspect,) = await record(backend, "suspect")
    for _ in range(2):
        await me.claim_one()
        await crash(clock)
    (b,) = await record(backend, "b")
    assert await me.keys(ids=[suspect.id, b.id]) == ["b"]
    assert await me.keys(ids=[suspect.id]) == []


# --- waking up


async def wakes(me: QueueWorker, *, within: float = 5.0) -> bool:
    """Return whether `wait` ends well before its time-out."""
    try:
        await asyncio.wait_for(me.queue.wait(timedelta(minutes=5)), within)
    except TimeoutError:
        return False
    return True


async def test_a_new_event_wakes_a_waiting_worker(backend: Backend, me: QueueWorker) -> None:
    assert await me.claim() == []
    waiting = asyncio.ensure_future(wakes(me))
    await asyncio.sleep(0)
    await record(backend, "a")
    assert await waiting


async def test_an_event_recorded_between_claim_and_wait_is_not_missed(
    backend: Backend, me: QueueWorker
) -> None:
    assert await me.claim() == []
    await record(backend, "a")
    assert await wakes(me)


async def test_a_settle_wakes_a_worker_for_the_next_event_of_its_lane(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, "a1", "a2", lane="a")
    claim = await me.claim_one()
    assert await me.claim() == []
    await me.settle(claim, done())
    assert await wakes(me)
    assert await me.keys() == ["a2"]


@pytest.mark.parametrize("what", ["retry", "lease"])
async def test_the_wait_ends_when_the_next_event_is_due(
    backend: Backend, me: QueueWorker, clock: ManualClock, what: str
) -> None:
    await record(backend, "a")
    claim = await me.claim_one(lease=timedelta(milliseconds=50))
    if what == "retry":
        await me.settle(claim, retry_later(after=timedelta(milliseconds=50)))
    assert await me.claim() == []
    assert await wakes(me)
    clock.advance(seconds=0.05)
    assert await me.keys() == ["a"]


async def test_without_a_due_event_the_wait_lasts_its_timeout(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, "a")
    await me.settle(await me.claim_one(), retry_later(after=timedelta(hours=1)))
    assert await me.claim() == []
    assert not await wakes(me, within=0.05)
    await me.queue.wait(timedelta(milliseconds=1))  # returns, and raises nothing


# --- the count of waiting events (W7)


async def test_pending_and_due_events_are_counted_as_waiting(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W7
    async def waiting() -> int:
        return await backend.reader.waiting(clock())

    assert await waiting() == 0
    await record(backend, *"abcd")
    await record(backend, "l1", "l2", lane="l")
    assert await waiting() == 6
    claims = await me.claim(2)
    assert await waiting() == 4
    await me.settle(claims[0], retry_later(after=10 * SECOND))
    await me.settle(claims[1], done())
    assert await waiting() == 4
    clock.advance(seconds=10)
    assert await waiting() == 5


async def test_parked_events_are_not_counted_as_waiting(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, *"abc")  # S6
    a, b, _ = await me.claim()
    await me.settle_all([a, b], Release(parked=True))
    assert await backend.reader.waiting(clock()) == 0
    await record(backend, "d")
    assert await backend.reader.waiting(clock()) == 1
    assert await backend.store.unpark("webhooks", "webhook") == 2
    assert await backend.reader.waiting(clock()) == 3


async def test_the_status_counts_follow_every_step(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, *"abcdef")
    claims = await me.claim(5)
    outcomes: list[Outcome] = [done(), retry_later(), dead(), Release()]
    await me.queue.settle([Settlement(c, o) for c, o in zip(claims, outcomes, strict=False)])
    counts = (await backend.reader.stats()).counts
    assert {str(status): count for status, count in counts.items()} == {
        "pending": 3,
        "processing": 1,
        "completed": 1,
        "failed": 1,
    }


async def test_failed_effects_of_a_last_attempt_make_a_dead_letter(
    backend: Backend, me: QueueWorker
) -> None:  # L10
    await record(backend, "a")
    claim = await me.claim_one()
    outcome = done(
        "INSERT INTO nowhere VALUES (1)", on_effect_failure=DeadLetter(Failure("", "tx"))
    )
    written = await me.settle(claim, outcome)
    assert isinstance(written[claim.id], DeadLetter)
    assert (await row(backend, "a"))["status"] == "failed"
