"""A worker for tests of the queue: it claims and settles when a test says so."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from ackbox.model import (
    Caps,
    Claim,
    DeadLetter,
    Done,
    EventId,
    Failure,
    Outcome,
    RetryLater,
    Settlement,
    Statement,
    WorkerId,
)
from ackbox.ports import EventQueue

LEASE = timedelta(seconds=30)
ME, OTHER = WorkerId("me"), WorkerId("other")
NO_CLAIMS_HELD = Caps(share=1000, held={})


def retry_later(
    code: str = "ValueError", *, after: timedelta = timedelta(seconds=10)
) -> RetryLater:
    return RetryLater(Failure(f"{code}: boom", code), after)


def dead(error: str = "no use") -> DeadLetter:
    return DeadLetter(Failure(error, "Dead"))


def done(
    *statements: str, on_effect_failure: RetryLater | DeadLetter | None = None, **params: object
) -> Done:
    """Return the outcome of a completed run, with the statements as its effects."""
    effects = [Statement(sql, params) for sql in statements]
    return Done("handled", effects, (on_effect_failure or retry_later("tx")) if effects else None)


class QueueWorker:
    """A worker without a loop: each method makes one call to the queue."""

    def __init__(self, queue: EventQueue, name: WorkerId = ME) -> None:
        self.queue = queue
        self.name = name

    async def claim(
        self,
        limit: int = 100,
        *,
        lease: timedelta = LEASE,
        caps: Caps = NO_CLAIMS_HELD,
        ids: Sequence[EventId] | None = None,
    ) -> list[Claim]:
        if ids is not None:
            return await self.queue.claim_these(self.name, ids, limit=limit, lease=lease)
        return await self.queue.claim(self.name, limit=limit, lease=lease, caps=caps)

    async def claim_one(self, **more: Any) -> Claim:
        (claim,) = await self.claim(**more)
        return claim

    async def claim_any(self) -> Claim:
        """Claim the only event that is due, even if it is a suspect."""
        if (suspect := await self.queue.suspect()) is None:
            return await self.claim_one()
        claim = await self.queue.claim_suspect(self.name, suspect.id, lease=LEASE)
        assert claim is not None
        return claim

    async def keys(self, limit: int = 100, **more: Any) -> list[str]:
        return [claim.idempotency_key for claim in await self.claim(limit, **more)]

    async def settle(self, claim: Claim, outcome: Outcome) -> Mapping[EventId, Outcome]:
        return await self.queue.settle([Settlement(claim, outcome)])

    async def settle_all(
        self, claims: Sequence[Claim], outcome: Outcome
    ) -> Mapping[EventId, Outcome]:
        return await self.queue.settle([Settlement(claim, outcome) for claim in claims])
