"""Metrics of refusals and of the quarantine, by source. Sources come from the configuration; every
series exists from the start (C3)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ackbox.model import QuarantineUsage, RefusalReason
from ackbox.telemetry import (
    Fact,
    Quarantined,
    QuarantineMeasured,
    QuarantineReleased,
    SourceRefused,
)

_OTHER = "other"


class QuarantineMetrics:
    def __init__(self, sources: AbstractSet[str]) -> None:
        self._sources = sources
        labels = sorted({*sources, _OTHER})
        self._refusals = Counter(dict.fromkeys(product(labels, RefusalReason), 0))
        self._kept = Counter(dict.fromkeys(labels, 0))
        self._dropped = Counter(dict.fromkeys(labels, 0))
        self._released = 0
        self._usage: Mapping[str, QuarantineUsage] = {}

    def observe(self, fact: Fact) -> None:
        match fact:
            case SourceRefused(source, reason):
                self._refusals[self._label(source), reason] += 1
            case Quarantined(source, kept, dropped, _):
                self._kept[self._label(source)] += kept
                self._dropped[self._label(source)] += dropped
            case QuarantineMeasured(usage):
                self._usage = usage
            case QuarantineReleased(_, _, changed):
                self._released += changed
            case _:
                pass

    def collect(self) -> Iterator[Metric]:
        refusals = CounterMetricFamily(
            "ackbox_source_refusals",
            "Requests and items of deliveries that a source refused, by source and reason.",
            labels=("source", "reason"),
        )
        for (source, reason), count in self._refusals.items():
            refusals.add_metric((source, reason), count)
        yield refusals
        yield _by_source(
            "ackbox_quarantine_kept", "Refused requests put into the quarantine.", self._kept
        )
        yield _by_source(
            "ackbox_quarantine_dropped",
            "Refused requests that were not kept, for lack of room or because of an outage.",
            self._dropped,
        )
        yield CounterMetricFamily(
            "ackbox_quarantine_released",
            "Requests that an operator released from the quarantine.",
            value=self._released,
        )
        yield from self._usage_metrics()

    def _usage_metrics(self) -> Iterator[Metric]:
        requests: Counter[str] = Counter(dict.fromkeys(self._kept, 0))
        size: Counter[str] = Counter(dict.fromkeys(self._kept, 0))
        for source, used in self._usage.items():
            requests[self._label(source)] += used.requests
            size[self._label(source)] += used.bytes
        for name, text, values in (
            ("ackbox_quarantine_requests", "Requests in the quarantine.", requests),
            ("ackbox_quarantine_bytes", "Bytes in the quarantine.", size),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("source",))
            for source, value in values.items():
                gauge.add_metric((source,), value)
            yield gauge

    def _label(self, source: str) -> str:
        return source if source in self._sources else _OTHER


def _by_source(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("source",))
    for source, count in counts.items():
        family.add_metric((source,), count)
    return family
