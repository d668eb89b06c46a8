"""Log lines of refused requests (N15)."""

from collections.abc import Callable

from ackbox.exporters.loggers import Logger
from ackbox.telemetry import RequestRefused

_SECONDS = 1.0


class RefusalLog:
    """Log refused requests, at most one a second. A line counts the refusals that were suppressed
    since the last line."""

    def __init__(
        self, logger: Logger, clock: Callable[[], float], *, seconds: float = _SECONDS
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._seconds = seconds
        self._muted_until: float | None = None
        self._suppressed = 0

    def log(self, fact: RequestRefused) -> None:
        now = self._clock()
        if self._muted_until is not None and now < self._muted_until:
            self._suppressed += 1
            return
        self._muted_until = now + self._seconds
        suppressed, self._suppressed = self._suppressed, 0
        self._logger.warning(
            "request refused",
            status=fact.status,
            reason=fact.reason,
            request_id=fact.request_id,
            peer=fact.peer,
            suppressed=suppressed,
        )
