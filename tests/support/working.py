"""Runs of a worker, without one: events claimed and settled as a test wants them."""

from collections.abc import Sequence
from datetime import timedelta

from ackbox.model import (
    Caps,
    Claim,
    DeadLetter,
    Done,
    Envelope,
    EventId,
    Failure,
    Outcome,
    RetryLater,
    Settlement,
    WorkerId,
)
from ackbox.ports import Store

WORKER = WorkerId("a-worker")
LEASE = timedelta(seconds=30)
DONE = Done()
DEAD = DeadLetter(Failure("it broke", "boom", traceback="where it broke"))
HELD_BY_NOBODY = Caps(share=100_000, held={})


def again(delay: timedelta = timedelta(minutes=5)) -> RetryLater:
    return RetryLater(Failure("it broke", "boom"), delay)


async def claim(store: Store, *ids: EventId, limit: int = 100_000) -> list[Claim]:
    """Of these, or of whatever is due."""
    return await store.queue.claim(
        WORKER, limit=limit, lease=LEASE, caps=HELD_BY_NOBODY, ids=ids or None
    )


async def settle(store: Store, claims: Sequence[Claim], outcome: Outcome = DONE) -> None:
    await store.queue.settle([Settlement(claim, outcome) for claim in claims])


async def work(store: Store, sent: Sequence[Envelope], outcome: Outcome = DONE) -> None:
    """One run each of these, to this end."""
    claims = await claim(store, *[one.id for one in sent])
    assert {claim.id for claim in claims} == {one.id for one in sent}
    await settle(store, claims, outcome)
