"""Observers that raise: each failure is counted, and the first of each observer is logged (F56)."""

from ackbox.exporters.loggers import Logger
from ackbox.services import summarize
from ackbox.telemetry import Observer, ObserverFailed, OnObserverError, to_all


def count_and_log(metrics: Observer, logger: Logger) -> OnObserverError:
    """Count with `metrics`, log with `logger`: neither goes through the observer that failed."""
    count = to_all(metrics)  # which may be the one that fails
    logged: set[str] = set()

    def on_error(observer: Observer, error: Exception) -> None:
        name = observer_name(observer)
        count(ObserverFailed(name, summarize(error)))
        if name not in logged:
            logged.add(name)
            logger.error("observer failed", observer=name, error=summarize(error))

    return on_error


def observer_name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)
