"""Suspects: events whose last runs ended with the process."""

import asyncio
from datetime import timedelta

import pytest

from ackbox.model import (
    EventId,
    Release,
)
from support.ledgers.backends import Backend, crash, record, row
from support.time.clocks import ManualClock
from support.workers.queue_worker import LEASE, ME, OTHER, QueueWorker, done

SECOND = timedelta(seconds=1)


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
