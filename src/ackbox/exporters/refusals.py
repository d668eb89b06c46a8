"""Refused requests in the log (N15)."""

from collections.abc import Callable

from ackbox.exporters.loggers import Logger
from ackbox.telemetry import RequestRefused

_SECONDS = 1.0


class RefusalLog:
    """Log a refused request; a flood of them is a line a second, with a count of the others."""

    def __init__(self, logger: Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_until: float | None = None
        self._suppressed = 0

    def say(self, fact: RequestRefused) -> None:
        now = self._clock()
        if self._quiet_until is not None and now < self._quiet_until:
            self._suppressed += 1
            return
        self._quiet_until = now + _SECONDS
        suppressed, self._suppressed = self._suppressed, 0
        self._logger.warning(
            "request refused",
            status=fact.status,
            reason=fact.reason,
            request_id=fact.request_id,
            peer=fact.peer,
            suppressed=suppressed,
        )
