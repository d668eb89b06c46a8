"""Observers that raise: each failure is counted, and the first of each observer is logged (F56)."""

from ackbox.exporters.loggers import Logger
from ackbox.services import summarize
from ackbox.telemetry import Fact, Observer, ObserverFailed, OnObserverError, to_all


def count_and_log(metrics: Observer, logger: Logger) -> OnObserverError:
    """Count with `metrics`, log with `logger`: neither goes through the observer that failed. If
    one of the two fails as well, a log on a full disk say, the caller goes on all the same."""
    logged: set[str] = set()

    def log_first(fact: Fact) -> None:
        if isinstance(fact, ObserverFailed) and fact.observer not in logged:
            logged.add(fact.observer)
            logger.error("observer failed", observer=fact.observer, error=fact.error)

    report = to_all(metrics, log_first)

    def on_error(observer: Observer, error: Exception) -> None:
        report(ObserverFailed(observer_name(observer), summarize(error)))

    return on_error


def observer_name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)
