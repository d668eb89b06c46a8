"""Waking up workers, and the count of waiting events (W7)."""

import asyncio
from datetime import timedelta

import pytest

from ackbox.model import (
    DeadLetter,
    Failure,
    Outcome,
    Release,
    Settlement,
)
from support.ledgers.backends import Backend, record, row
from support.time.clocks import ManualClock
from support.workers.queue_worker import QueueWorker, dead, done, retry_later

SECOND = timedelta(seconds=1)


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
    await wakes(me, within=0.1)  # the notification of the event may arrive only now
    assert await me.claim() == []
    assert not await wakes(me, within=0.05)
    await me.queue.wait(timedelta(milliseconds=1))  # returns, and raises nothing


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
    counts = (await backend.reader.stats(backend.clock())).counts
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
