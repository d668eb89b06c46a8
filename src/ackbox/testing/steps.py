"""Claim, run and settle one event after the other, as the worker does but without concurrency.

Claiming, running and settling are the inbox's own code; only the order is the harness's.
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
_LEASE = timedelta(days=1000)  # a claim must not expire when a test moves the clock far ahead


class HandlerFailed(Exception):
    """A handler raised an exception such as SystemExit, which would end the test run itself."""


class Stepper:
    """Runs single steps. `error` is the exception of the last run, unless it was `Retry`, `Snooze`
    or `Dead`."""

    def __init__(self, runtime: Runtime) -> None:
        self.error: BaseException | None = None
        self._runtime = runtime
        self._executor = runtime.make_executor(self._note_error)

    async def claim(self, limit: int) -> list[Claim]:
        """Claim the events that are due now, oldest first. If there are none, claim a suspect,
        alone."""
        queue, caps = self._runtime.queue, Caps(share=limit, held={})
        claims = await queue.claim(_WORKER, limit=limit, lease=_LEASE, caps=caps)
        if not claims and (suspect := await queue.suspect()) is not None:
            claim = await queue.claim_suspect(_WORKER, suspect.id, lease=_LEASE)
            claims = [] if claim is None else [claim]
        self._runtime.observe(Claimed(claims, [0.0] * len(claims)))
        return claims

    async def run(self, claim: Claim) -> Outcome:
        """Run the handler once, and return the outcome, which is not stored yet."""
        self.error = None
        registration = self._runtime.registry.find(claim.source, claim.event_type)
        if registration is not None:
            return await self._executor.run(claim, registration)
        if self._runtime.settings.unhandled == "park":
            return Release(parked=True)
        return Done("ignored")

    async def finish(self, claims: Sequence[Claim]) -> BaseException | None:
        """Run and settle each claim, in this order; return the first error."""
        errors = [await self._finish(claim) for claim in claims]
        return next((error for error in errors if error is not None), None)

    async def _finish(self, claim: Claim) -> BaseException | None:
        started = monotonic()
        outcome = await self.run(claim)
        seconds = monotonic() - started
        written = await self._runtime.queue.settle([Settlement(claim, outcome)])
        await self._runtime.mover.move_all()  # what the handler sent can be seen at once
        registration = self._runtime.registry.find(claim.source, claim.event_type)
        handler = None if registration is None else registration.name
        self._runtime.observe(Settled([claim], [seconds], written, [handler]))
        match outcome, written.get(claim.id):
            case Done(), RetryLater(failure) | DeadLetter(failure):  # a `tx` statement failed
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
