"""Facts as Prometheus metrics. Every name begins with `ackbox_`. Labels come from configuration
only, so senders cannot add series (F43)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import NoneType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ackbox.exporters.handler_metrics import HandlerMetrics
from ackbox.exporters.histograms import Histogram
from ackbox.exporters.quarantine_metrics import QuarantineMetrics
from ackbox.model import (
    Clock,
    DeadLetter,
    Done,
    ReceiptKind,
    Release,
    RetryLater,
    Snoozed,
    Stats,
    Status,
)
from ackbox.telemetry import (
    REFUSAL_REASONS,
    Checkpointed,
    Claimed,
    ClockSkewed,
    Committed,
    Discarded,
    Fact,
    HandlerAbandoned,
    LeaseLost,
    Measured,
    ObserverFailed,
    Pruned,
    PruneFailed,
    QueueFailed,
    QueueRecovered,
    Recorded,
    RecordFailed,
    Refused,
    Replayed,
    ResponseSent,
    RoutesServed,
    ServiceFailed,
    ServiceRecovered,
    ServiceStarted,
    Settled,
    Started,
    StoreFailed,
    StoreRecovered,
    Unhandled,
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_OTHER = "other"
_OUTCOMES: dict[type, str] = {
    Done: "ackbox_events_processed",
    RetryLater: "ackbox_events_errored",
    DeadLetter: "ackbox_events_dead_letter",
    Release: "ackbox_events_released",
    Snoozed: "ackbox_events_snoozed",
    NoneType: "ackbox_events_fenced",
}
_COUNTERS = {
    "ackbox_record_failures": "Batches that could not be stored at once.",
    "ackbox_store_failures": "Times the store became unable to record events.",
    "ackbox_events_claimed": "Runs claimed by workers.",
    "ackbox_events_processed": "Runs that completed their event.",
    "ackbox_events_errored": "Runs that failed and will be retried.",
    "ackbox_events_dead_letter": "Runs that ended as a dead letter.",
    "ackbox_events_released": "Runs that were released.",
    "ackbox_events_snoozed": "Runs that ended with Snooze, without spending an attempt.",
    "ackbox_events_fenced": "Runs whose claim was lost; their results were not applied.",
    "ackbox_events_unhandled": "Runs of events that no handler matches.",
    "ackbox_leases_lost": "Claims that were lost before their runs were settled.",
    "ackbox_observer_failures": "Facts that a log or metrics exporter failed on.",
    "ackbox_queue_failures": "Times the queue of QUEUE_URL became unusable.",
    "ackbox_events_discarded": "Events that an operator discarded.",
    "ackbox_events_replayed": "Events that got a new run from an operator.",
    "ackbox_events_pruned": "Old events deleted.",
    "ackbox_tombstones_made": "Keys of old events kept as tombstones.",
    "ackbox_tombstones_purged": "Tombstones deleted after DEDUPE_DAYS.",
    "ackbox_prune_failures": "Passes of retention that failed.",
}
_GAUGES = {
    "ackbox_store_unavailable": "1 while the store cannot record events.",
    "ackbox_wal_pages": "Pages in the write-ahead log at its last checkpoint.",
    "ackbox_clock_skew_seconds": "How far the database's clock is ahead of ours; 0 within 30 s.",
    "ackbox_queue_unavailable": "1 while the queue of QUEUE_URL cannot be used.",
}
_HISTOGRAMS = {
    "ackbox_accept_seconds": (_SECONDS, "From accepting an event until it is durable."),
    "ackbox_batch_events": (_EVENTS, "Events made durable together."),
    "ackbox_commit_seconds": (_SECONDS, "One transaction, synced."),
    "ackbox_checkpoint_seconds": (_SECONDS, "One copy of the write-ahead log into the file."),
    "ackbox_queue_seconds": (_SECONDS, "From receipt to the first run of an event."),
}


class PrometheusMetrics:
    """Counts facts in `observe`, and renders a scrape in `render`."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, clock: Clock, sources: frozenset[str]) -> None:
        self._clock = clock
        self._sources = sources
        self._counts: Counter[str] = Counter()
        self._gauges = dict.fromkeys(_GAUGES, 0.0)
        self._histograms = {name: Histogram(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
        # Every combination of labels exists from the start: Prometheus sees no increase in a series
        # that appears with its first count (C3).
        self._handlers = HandlerMetrics()
        self._quarantine = QuarantineMetrics(sources)
        self._received = _zeros(sorted({*sources, _OTHER}), ReceiptKind)
        self._refused = _zeros(sorted(REFUSAL_REASONS))
        self._responses = _zeros()
        self._service_failures = _zeros()
        self._services_failing = _zeros()
        self._measured: Measured | None = None
        self._started: Started | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, ResponseSent):
            self._responses[fact.route, fact.status] += 1
        elif isinstance(fact, Recorded):
            self._count_recorded(fact)
        elif isinstance(fact, Committed):
            self._histograms["ackbox_commit_seconds"].add(fact.seconds)
        elif isinstance(fact, Claimed):
            self._count_claimed(fact)
        elif isinstance(fact, Settled):
            self._count_settled(fact)
        else:
            self._observe_rare(fact)

    def add_handlers(self, names: Iterable[str]) -> None:
        """Create the series of these handlers."""
        self._handlers.add(names)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._labelled_metrics()
        yield from self._handlers.collect()
        yield from self._quarantine.collect()
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=self._counts[name])
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(name, text, value=self._gauges[name])
        for name, (_, text) in _HISTOGRAMS.items():
            yield self._histograms[name].metric(name, text)
        if self._measured is not None:
            yield from self._queue_metrics(self._measured)
        if self._started is not None:
            yield from _start_metrics(self._started)

    def _observe_rare(self, fact: Fact) -> None:
        match fact:
            case Refused(reason):
                self._refused[(reason,)] += 1
            case Measured():
                self._measured = fact
            case Checkpointed(seconds, pages, _):
                self._histograms["ackbox_checkpoint_seconds"].add(seconds)
                self._gauges["ackbox_wal_pages"] = pages
            case Started():
                self._started = fact
            case HandlerAbandoned(_, handler):
                self._handlers.count_abandoned(handler)
            case _:
                self._observe_maintenance(fact)

    def _observe_maintenance(self, fact: Fact) -> None:
        match fact:
            case Pruned(tombstoned, deleted, purged, _):
                self._counts["ackbox_tombstones_made"] += tombstoned
                self._counts["ackbox_events_pruned"] += deleted
                self._counts["ackbox_tombstones_purged"] += purged
            case PruneFailed():
                self._counts["ackbox_prune_failures"] += 1
            case Replayed(_, _, changed):
                self._counts["ackbox_events_replayed"] += changed
            case Discarded(_, _, changed):
                self._counts["ackbox_events_discarded"] += changed
            case _:
                self._observe_failures(fact)

    def _observe_failures(self, fact: Fact) -> None:
        match fact:
            case RecordFailed():
                self._counts["ackbox_record_failures"] += 1
            case StoreFailed():
                self._counts["ackbox_store_failures"] += 1
                self._gauges["ackbox_store_unavailable"] = 1
            case StoreRecovered():
                self._gauges["ackbox_store_unavailable"] = 0
            case QueueFailed():
                self._counts["ackbox_queue_failures"] += 1
                self._gauges["ackbox_queue_unavailable"] = 1
            case QueueRecovered():
                self._gauges["ackbox_queue_unavailable"] = 0
            case ClockSkewed(seconds):
                self._gauges["ackbox_clock_skew_seconds"] = seconds
            case _:
                self._observe_process(fact)

    def _observe_process(self, fact: Fact) -> None:
        match fact:
            case RoutesServed(routes, statuses):
                self._responses.update(_zeros(sorted(routes), sorted(statuses)))
            case ServiceStarted(name):
                self._service_failures.update(_zeros([name]))
                self._services_failing.update(_zeros([name]))
            case ServiceFailed(name):
                self._service_failures[(name,)] += 1
                self._services_failing[(name,)] = 1
            case ServiceRecovered(name):
                self._services_failing[(name,)] = 0
            case Unhandled(claims):
                self._counts["ackbox_events_unhandled"] += len(claims)
            case LeaseLost(claims):
                self._counts["ackbox_leases_lost"] += len(claims)
            case ObserverFailed():
                self._counts["ackbox_observer_failures"] += 1
            case _:
                self._quarantine.observe(fact)

    def _count_recorded(self, fact: Recorded) -> None:
        for envelope, receipt in zip(fact.envelopes, fact.receipts, strict=True):
            source = envelope.source if envelope.source in self._sources else _OTHER
            self._received[source, receipt.kind] += 1
        self._histograms["ackbox_accept_seconds"].add_all(fact.seconds)
        self._histograms["ackbox_batch_events"].add(len(fact.receipts))

    def _count_claimed(self, fact: Claimed) -> None:
        self._counts["ackbox_events_claimed"] += len(fact.claims)
        waited = zip(fact.claims, fact.waited, strict=True)
        first = [seconds for claim, seconds in waited if claim.run == 1]
        self._histograms["ackbox_queue_seconds"].add_all(first)

    def _count_settled(self, fact: Settled) -> None:
        written = [fact.written.get(claim.id) for claim in fact.claims]
        for kind, count in Counter(map(type, written)).items():
            self._counts[_OUTCOMES[kind]] += count
        self._handlers.count_settled(fact, written)

    def _labelled_metrics(self) -> Iterator[Metric]:
        yield _labelled(
            "ackbox_events_received",
            "Events made durable, by source and kind of receipt.",
            ("source", "receipt"),
            self._received,
        )
        yield _labelled(
            "ackbox_events_refused", "Events not accepted, by reason.", ("reason",), self._refused
        )
        yield _labelled(
            "ackbox_http_responses",
            "HTTP responses, by route and status.",
            ("route", "status"),
            self._responses,
        )
        yield _labelled(
            "ackbox_service_failures",
            "Times a background loop failed and was restarted.",
            ("service",),
            self._service_failures,
        )
        failing = GaugeMetricFamily(
            "ackbox_service_failing", "1 while a background loop fails.", labels=("service",)
        )
        for labels, value in self._services_failing.items():
            failing.add_metric([str(label) for label in labels], value)
        yield failing

    def _queue_metrics(self, measured: Measured) -> Iterator[Metric]:
        yield _by_status("ackbox_events", "Events in the ledger, by status.", measured.stats)
        yield GaugeMetricFamily(
            "ackbox_queue_depth",
            "Events that wait to be processed.",
            value=measured.stats.pending,
        )
        yield GaugeMetricFamily(
            "ackbox_oldest_pending_seconds",
            "Age of the oldest pending event, counted from its arrival.",
            value=measured.stats.lag(self._clock()).total_seconds(),
        )
        yield GaugeMetricFamily(
            "ackbox_buffer_events",
            "Events accepted and not yet durable.",
            value=measured.buffered_events,
        )
        yield GaugeMetricFamily(
            "ackbox_buffer_bytes",
            "Bytes held for requests without a response yet.",
            value=measured.buffered_bytes,
        )


def _start_metrics(started: Started) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "ackbox_start_pending_events",
        "Pending events found at the start.",
        value=started.stats.pending,
    )
    yield GaugeMetricFamily(
        "ackbox_start_dead_letters",
        "Dead letters found at the start.",
        value=started.stats.counts[Status.FAILED],
    )
    yield GaugeMetricFamily(
        "ackbox_start_oldest_pending_seconds",
        "Age of the oldest pending event at the start.",
        value=started.lag_seconds,
    )


def _zeros(*values: Iterable[object]) -> Counter[tuple[object, ...]]:
    """Return a count of 0 for every combination of these label values."""
    return Counter(dict.fromkeys(product(*values), 0) if values else ())


def _labelled(
    name: str, text: str, labels: Sequence[str], counts: Mapping[tuple[object, ...], int]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric([str(value) for value in values], count)
    return family


def _by_status(name: str, text: str, stats: Stats) -> Metric:
    family = GaugeMetricFamily(name, text, labels=("status",))
    for status, count in stats.counts.items():
        family.add_metric((status,), count)
    return family
