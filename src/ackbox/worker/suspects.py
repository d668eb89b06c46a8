"""Suspects: events whose last two runs or more ended with the process (ADR 18)."""

from collections.abc import Callable
from time import monotonic

from ackbox.handlers import Registry
from ackbox.model import CRASHED, Suspect
from ackbox.ports import EventQueue
from ackbox.worker.execution import Executor, is_spent

_CHECK_SECONDS = 1.0


class Suspects:
    """Finds the suspect that a worker runs next."""

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
        self._next_check = 0.0

    async def find(self) -> Suspect | None:
        """Return the next suspect. Query the store at most once a second: suspects are rare."""
        now = self._monotonic()
        if now < self._next_check:
            return None
        self._next_check = now + _CHECK_SECONDS
        return await self._queue.suspect()

    def check_now(self) -> None:
        """Query the store at the next `find`: a suspect was settled, and there may be another."""
        self._next_check = 0.0

    def must_run_alone(self, suspect: Suspect) -> bool:
        """Return whether this attempt would dead-letter the event if the process ended."""
        registration = self._registry.find(suspect.source, suspect.event_type)
        if registration is None:
            return False
        limit = self._executor.attempts_of(registration)
        would_be_last = suspect.attempts >= limit and suspect.unsettled >= CRASHED - 1
        return would_be_last and not is_spent(suspect, limit)
