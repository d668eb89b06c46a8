"""The columns that each outcome writes."""

import json
from datetime import timedelta
from typing import Any

import pytest

from ackbox.model import (
    Claim,
    DeadLetter,
    Done,
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
from support.ledgers.backends import Backend, Row, record, restart, row
from support.time.clocks import ManualClock
from support.workers.queue_worker import QueueWorker, dead, done, retry_later

SECOND = timedelta(seconds=1)
SETTLED = ("processor_id", "lease_until", "updated_at", "claimable_at", "status", "outcome")


def errors(row: Row) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = json.loads(row["errors"])
    return kept


def without(row: Row, *columns: str) -> Row:
    return {name: value for name, value in row.items() if name not in columns}


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
    me = await restart(backend)
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


async def test_outcomes_are_settled_in_whatever_order_the_runs_ended(
    backend: Backend, me: QueueWorker
) -> None:
    await record(backend, *"abc")
    claims = await me.claim()
    delays = {claim.id: timedelta(minutes=n) for n, claim in enumerate(claims, 1)}
    ends = [Settlement(c, retry_later(after=delays[c.id])) for c in reversed(claims)]
    assert len(await me.queue.settle(ends)) == 3
    due = [(await row(backend, key))["retry_after"] for key in "abc"]
    assert due == sorted(set(due))
