"""Runs without a worker: a test claims events and settles them with the outcome that it needs."""

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
NO_CLAIMS_HELD = Caps(share=100_000, held={})


def retry_later(delay: timedelta = timedelta(minutes=5)) -> RetryLater:
    return RetryLater(Failure("it broke", "boom"), delay)


async def claim(store: Store, *ids: EventId, limit: int = 100_000) -> list[Claim]:
    """Claim these events, or all that are due if no id is given."""
    if ids:
        return await store.queue.claim_these(WORKER, ids, limit=limit, lease=LEASE)
    return await store.queue.claim(WORKER, limit=limit, lease=LEASE, caps=NO_CLAIMS_HELD)


async def settle(store: Store, claims: Sequence[Claim], outcome: Outcome = DONE) -> None:
    await store.queue.settle([Settlement(claim, outcome) for claim in claims])


async def work(store: Store, sent: Sequence[Envelope], outcome: Outcome = DONE) -> None:
    """Run each of these events once and settle it with this outcome."""
    claims = await claim(store, *[envelope.id for envelope in sent])
    assert {claim.id for claim in claims} == {envelope.id for envelope in sent}
    await settle(store, claims, outcome)
