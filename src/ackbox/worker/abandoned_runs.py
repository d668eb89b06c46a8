"""Runs that were abandoned: their handlers neither end in time nor can be ended."""

import asyncio
from typing import Any

from ackbox.handlers import Registration
from ackbox.model import Claim, Failure
from ackbox.telemetry import AbandonedEnded, HandlerAbandoned, Observer
from ackbox.worker.failures import describe_failure
from ackbox.worker.threads import Ended
from ackbox.worker.tracebacks import Stack, format_stack, innermost_of


class AbandonedRuns:
    """The abandoned runs whose handlers have not ended. Each was settled when it was abandoned."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._hung: dict[asyncio.Future[Any], str] = {}

    def __len__(self) -> int:
        return len(self._hung)

    def add(
        self, end: "asyncio.Future[Any]", claim: Claim, registration: Registration, stack: Stack
    ) -> None:
        """Add a run whose handler was at `stack`. `end` is the task of the run, or the end of its
        thread."""
        location = innermost_of(stack)
        where = "" if location is None else f", in {location}"
        self._hung[end] = f"{registration.name} (event {claim.id}{where})"
        hung = list(self._hung.values())
        self._observe(HandlerAbandoned(claim, registration.name, format_stack(stack), hung))
        end.add_done_callback(lambda end: self._remove(end, claim, registration))

    def _remove(self, end: "asyncio.Future[Any]", claim: Claim, registration: Registration) -> None:
        del self._hung[end]
        failure = _failure_of(end)
        self._observe(AbandonedEnded(claim, registration.name, failure, len(self._hung)))


def _failure_of(end: "asyncio.Future[Any]") -> Failure | None:
    if end.cancelled():
        return None
    error, result = end.exception(), None
    if error is None:
        result = end.result()
        error = result.error if isinstance(result, Ended) else None
    return getattr(result, "failure", None) if error is None else describe_failure(error)
