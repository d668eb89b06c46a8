"""Metrics of runs, by handler. The names come from the code that registers handlers, so the number
of series is bounded. Every series exists from the start (C3)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from ackbox.exporters.histograms import Histogram
from ackbox.model import DeadLetter, Done, Outcome, Release, RetryLater, Snoozed
from ackbox.telemetry import Settled

_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_OUTCOMES: dict[type, str] = {
    Done: "completed",
    RetryLater: "retry",
    DeadLetter: "dead_letter",
    Release: "released",
    Snoozed: "snoozed",
    NoneType: "fenced",
}


class HandlerMetrics:
    def __init__(self) -> None:
        self._runs: Counter[tuple[str, str]] = Counter()
        self._abandoned: Counter[str] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def add(self, handlers: Iterable[str]) -> None:
        for handler in sorted(handlers):
            self._seconds.setdefault(handler, Histogram(_SECONDS))
            self._abandoned.setdefault(handler, 0)
            for outcome in _OUTCOMES.values():
                self._runs.setdefault((handler, outcome), 0)

    def count_settled(self, fact: Settled, written: Sequence[Outcome | None]) -> None:
        """Count these runs; `written` is the outcome stored for each claim, None if fenced off."""
        for (handler, kind), count in Counter(
            zip(fact.handlers, map(type, written), strict=True)
        ).items():
            if handler is not None:
                self._runs[handler, _OUTCOMES[kind]] += count
        for handler, seconds in zip(fact.handlers, fact.seconds, strict=True):
            if handler is not None:
                self._histogram(handler).add(seconds)

    def count_abandoned(self, handler: str) -> None:
        self._abandoned[handler] += 1

    def collect(self) -> Iterator[Metric]:
        runs = CounterMetricFamily(
            "ackbox_runs", "Runs of a handler, by outcome.", labels=("handler", "outcome")
        )
        for (handler, outcome), count in self._runs.items():
            runs.add_metric((handler, outcome), count)
        abandoned = CounterMetricFamily(
            "ackbox_runs_abandoned",
            "Runs that went on past their time-out and were abandoned.",
            labels=("handler",),
        )
        for handler, count in self._abandoned.items():
            abandoned.add_metric((handler,), count)
        seconds = HistogramMetricFamily(
            "ackbox_run_seconds", "One run of a handler.", labels=("handler",)
        )
        for handler, histogram in self._seconds.items():
            seconds.add_metric((handler,), histogram.buckets(), histogram.sum)
        yield from (runs, abandoned, seconds)

    def _histogram(self, handler: str) -> Histogram:
        if handler not in self._seconds:
            self.add([handler])
        return self._seconds[handler]
