"""Observers that raise: count every failure, and log the first of each observer (F56)."""

from ackbox.exporters.loggers import Logger
from ackbox.services import summarize
from ackbox.telemetry import Fact, Observer, ObserverFailed, OnObserverError, combine_observers


def count_and_log(metrics: Observer, logger: Logger) -> OnObserverError:
    """Return a callback for an observer that raised. It counts each failure with `metrics`, and
    logs the first of each observer directly with `logger`, because the log exporter may be what
    failed. An error of the counting or logging itself, such as a log on a full disk, is ignored."""
    logged: set[str] = set()

    def log_first(fact: Fact) -> None:
        if isinstance(fact, ObserverFailed) and fact.observer not in logged:
            logged.add(fact.observer)
            logger.error("observer failed", observer=fact.observer, error=fact.error)

    report = combine_observers(metrics, log_first)

    def on_error(observer: Observer, error: Exception) -> None:
        report(ObserverFailed(observer_name(observer), summarize(error)))

    return on_error


def observer_name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)
