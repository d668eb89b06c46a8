"""Log lines of the quarantine."""

from collections.abc import Callable
from typing import Any

from ackbox.exporters.loggers import Logger
from ackbox.telemetry import Quarantined, QuarantineDropped, QuarantineLoss, QuarantineReleased


class QuarantineLog:
    """Log the facts of the quarantine; `allows` says whether a line about a subject is due."""

    def __init__(self, logger: Logger, allows: Callable[[str], bool]) -> None:
        self._logger = logger
        self._allows = allows
        self.lines: dict[type, Callable[[Any], None]] = {
            Quarantined: self._log_quarantined,
            QuarantineReleased: self._log_released,
            QuarantineDropped: self._log_dropped,
        }

    def _log_quarantined(self, fact: Quarantined) -> None:
        """Log that requests were kept, and that some were lost, each once a minute and source."""
        if fact.kept and self._allows(f"quarantine {fact.source}"):
            self._logger.warning("requests quarantined", source=fact.source, requests=fact.kept)
        if fact.dropped and self._allows(f"quarantine {fact.loss.name} {fact.source}"):
            self._log_loss(fact)

    def _log_loss(self, fact: Quarantined) -> None:
        if fact.loss is QuarantineLoss.FULL:
            self._logger.error("quarantine is full", source=fact.source, requests=fact.dropped)
        else:
            self._logger.error(
                "requests not quarantined",
                source=fact.source,
                requests=fact.dropped,
                reason=fact.loss.value,
            )

    def _log_released(self, fact: QuarantineReleased) -> None:
        self._logger.info(
            "quarantine released", actor=fact.actor, requests=fact.requests, changed=fact.changed
        )

    def _log_dropped(self, fact: QuarantineDropped) -> None:
        self._logger.info("quarantine dropped", actor=fact.actor, requests=fact.requests)
