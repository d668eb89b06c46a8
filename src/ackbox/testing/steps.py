"""Claim, run and settle, one event after the other: what the worker does, without its concurrency.

Claims, the meaning of a run's end, and settling are the inbox's own; only the order is ours.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from ackbox.errors import InvalidStatement
from ackbox.handlers import Dead, Retry, Snooze
from ackbox.model import (
    Caps,
    Claim,
    DeadLetter,
    Done,
    Outcome,
    Release,
    RetryLater,
    Settlement,
    WorkerId,
)
from ackbox.runtime import Runtime
from ackbox.telemetry import Claimed, Settled

_WORKER = WorkerId("test")
_LEASE = timedelta(days=1000)  # a clock that is moved far ahead must not end the claim of a step


class HandlerFailed(Exception):
    """A handler raised something that would end the test run itself, as SystemExit does."""


class Stepper:
    """`error` is what the last run raised, unless the handler asked for it by `Retry`, `Snooze`
    or `Dead`."""

    def __init__(self, runtime: Runtime) -> None:
        self.error: BaseException | None = None
        self._runtime = runtime
        self._executor = runtime.make_executor(self._note_error)

    async def claim(self, limit: int) -> list[Claim]:
        """What is due now, oldest first; a suspect comes alone, when nothing else is due."""
        queue, caps = self._runtime.queue, Caps(share=limit, held={})
        claims = await queue.claim(_WORKER, limit=limit, lease=_LEASE, caps=caps)
        if not claims and (suspect := await queue.suspect()) is not None:
            claim = await queue.claim_suspect(_WORKER, suspect.id, lease=_LEASE)
            claims = [] if claim is None else [claim]
        self._runtime.observe(Claimed(claims, [0.0] * len(claims)))
        return claims

    async def run(self, claim: Claim) -> Outcome:
        """One run of its handler; what it came to is not stored yet."""
        self.error = None
        registration = self._runtime.registry.find(claim.source, claim.event_type)
        if registration is not None:
            return await self._executor.run(claim, registration)
        if self._runtime.settings.unhandled == "park":
            return Release(parked=True)
        return Done("ignored")

    async def finish(self, claims: Sequence[Claim]) -> BaseException | None:
        """Run and settle each, in this order; return the first error."""
        errors = [await self._finish(claim) for claim in claims]
        return next((error for error in errors if error is not None), None)

    async def _finish(self, claim: Claim) -> BaseException | None:
        started = monotonic()
        outcome = await self.run(claim)
        seconds = monotonic() - started
        written = await self._runtime.queue.settle([Settlement(claim, outcome)])
        ran = self._runtime.registry.find(claim.source, claim.event_type)
        handler = None if ran is None else ran.name
        self._runtime.observe(Settled([claim], [seconds], written, [handler]))
        match outcome, written.get(claim.id):
            case Done(), RetryLater(failure) | DeadLetter(
                failure
            ):  # what it wrote through `tx` failed
                return InvalidStatement(failure.error)
            case _:
                return self.error

    def _note_error(self, error: BaseException) -> None:
        self.error = None if isinstance(error, Dead | Retry | Snooze) else error


def raise_for_a_test(error: BaseException | None) -> None:
    if isinstance(error, Exception):
        raise error
    if error is not None:
        raise HandlerFailed(f"the handler raised {error!r}") from error
