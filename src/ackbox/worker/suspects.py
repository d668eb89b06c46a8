"""Suspects: events whose last two runs or more ended with the process (ADR 18)."""

from collections.abc import Callable
from time import monotonic

from ackbox.handlers import Registry
from ackbox.model import CRASHED, Suspect
from ackbox.ports import EventQueue
from ackbox.worker.execution import Executor, is_spent

_LOOK_SECONDS = 1.0


class Suspects:
    """Looks for the suspect that a worker runs next."""

    def __init__(
        self,
        queue: EventQueue,
        registry: Registry,
        executor: Executor,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._executor = executor
        self._monotonic = monotonic
        self._look_at = 0.0

    async def find(self) -> Suspect | None:
        """Ask the store at most about once a second: there hardly ever is one."""
        now = self._monotonic()
        if now < self._look_at:
            return None
        self._look_at = now + _LOOK_SECONDS
        return await self._queue.suspect()

    def look_at_once(self) -> None:
        """A suspect was settled: there may be another."""
        self._look_at = 0.0

    def must_run_alone(self, suspect: Suspect) -> bool:
        """Return whether this attempt would dead-letter the event if the process ended."""
        registration = self._registry.find(suspect.source, suspect.event_type)
        if registration is None:
            return False
        limit = self._executor.attempts_of(registration)
        would_be_last = suspect.attempts >= limit and suspect.unsettled >= CRASHED - 1
        return would_be_last and not is_spent(suspect, limit)
