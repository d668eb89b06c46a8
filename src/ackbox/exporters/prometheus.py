"""Facts as Prometheus metrics. Every name begins `ackbox_`; labels come from configuration only, so
that nothing a sender does adds a series (F43)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from types import NoneType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from ackbox.model import Again, Buried, Clock, Done, Release, Stats, Status
from ackbox.telemetry import (
    Answered,
    Checkpointed,
    Claimed,
    ClockSkewed,
    Committed,
    Fact,
    Measured,
    Pruned,
    PruneFailed,
    QueueRecovered,
    QueueTrouble,
    Recorded,
    RecordFailed,
    Refused,
    Replayed,
    Settled,
    Started,
    StoreRecovered,
    StoreTrouble,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_OTHER = "other"
_OUTCOMES: dict[type, str] = {
    Done: "processed",
    Again: "errored",
    Buried: "dead_letter",
    Release: "released",
    NoneType: "fenced",
}
_SETTLED = {
    "processed": "Runs that completed their event.",
    "errored": "Runs that failed and will be tried again.",
    "dead_letter": "Runs that ended as a dead letter.",
    "released": "Runs that were handed back.",
    "fenced": "Runs whose claim was lost; nothing of theirs was applied.",
}


class PrometheusMetrics:
    """`observe` takes facts; `render` answers a scrape."""

    def __init__(self, clock: Clock, sources: frozenset[str]) -> None:
        self._clock = clock
        self._sources = sources
        self._received: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter()
        self._answered: Counter[tuple[str, int]] = Counter()
        self._record_failures = 0
        self._troubles = 0
        self._in_trouble = 0
        self._queue_troubles = 0
        self._queue_in_trouble = 0
        self._accept_seconds = Histogram(_SECONDS)
        self._batch_events = Histogram(_EVENTS)
        self._commit_seconds = Histogram(_SECONDS)
        self._checkpoint_seconds = Histogram(_SECONDS)
        self._claimed = 0
        self._settled: Counter[str] = Counter()
        self._queue_seconds = Histogram(_SECONDS)
        self._run_seconds = Histogram(_SECONDS)
        self._pruned: Counter[str] = Counter()
        self._prune_failures = 0
        self._replayed = 0
        self._wal_pages = 0
        self._clock_skew = 0.0
        self._measured: Measured | None = None
        self._started: Started | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, Answered):
            self._answered[fact.route, fact.status] += 1
        elif isinstance(fact, Recorded):
            self._count_recorded(fact)
        elif isinstance(fact, Committed):
            self._commit_seconds.add(fact.seconds)
        elif isinstance(fact, Claimed):
            self._count_claimed(fact)
        elif isinstance(fact, Settled):
            self._count_settled(fact)
        else:
            self._observe_rare(fact)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._ingest_metrics()
        yield from self._store_metrics()
        yield from self._work_metrics()
        yield from self._relay_metrics()
        yield from self._retention_metrics()
        if self._measured is not None:
            yield from self._queue_metrics(self._measured)
        if self._started is not None:
            yield from self._start_metrics(self._started)

    def _observe_rare(self, fact: Fact) -> None:
        match fact:
            case Refused(reason):
                self._refused[reason] += 1
            case Measured():
                self._measured = fact
            case Checkpointed(seconds, pages, _):
                self._checkpoint_seconds.add(seconds)
                self._wal_pages = pages
            case Started():
                self._started = fact
            case _:
                self._observe_upkeep(fact)

    def _observe_upkeep(self, fact: Fact) -> None:
        match fact:
            case Pruned(buried, deleted, forgotten, _, _):
                self._pruned.update(buried=buried, deleted=deleted, forgotten=forgotten)
            case PruneFailed():
                self._prune_failures += 1
            case Replayed(_, _, moved):
                self._replayed += moved
            case _:
                self._observe_trouble(fact)

    def _observe_trouble(self, fact: Fact) -> None:
        match fact:
            case RecordFailed():
                self._record_failures += 1
            case StoreTrouble():
                self._troubles += 1
                self._in_trouble = 1
            case StoreRecovered():
                self._in_trouble = 0
            case QueueTrouble():
                self._queue_troubles += 1
                self._queue_in_trouble = 1
            case QueueRecovered():
                self._queue_in_trouble = 0
            case ClockSkewed(seconds):
                self._clock_skew = seconds
            case _:
                pass

    def _count_recorded(self, fact: Recorded) -> None:
        for envelope, receipt in zip(fact.envelopes, fact.receipts, strict=True):
            source = envelope.source if envelope.source in self._sources else _OTHER
            self._received[source, receipt.kind] += 1
        self._accept_seconds.add_all(fact.seconds)
        self._batch_events.add(len(fact.receipts))

    def _count_claimed(self, fact: Claimed) -> None:
        self._claimed += len(fact.claims)
        waited = zip(fact.claims, fact.waited, strict=True)
        self._queue_seconds.add_all([seconds for claim, seconds in waited if claim.run == 1])

    def _count_settled(self, fact: Settled) -> None:
        written = [fact.written.get(claim.id) for claim in fact.claims]
        for kind, count in Counter(map(type, written)).items():
            self._settled[_OUTCOMES[kind]] += count
        self._run_seconds.add_all(fact.seconds)

    def _work_metrics(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "ackbox_events_claimed", "Runs taken by workers.", value=self._claimed
        )
        for outcome, text in _SETTLED.items():
            yield CounterMetricFamily(
                f"ackbox_events_{outcome}", text, value=self._settled[outcome]
            )
        yield self._queue_seconds.metric(
            "ackbox_queue_seconds", "From receipt to the first run of an event."
        )
        yield self._run_seconds.metric("ackbox_run_seconds", "One run of a handler.")

    def _ingest_metrics(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "ackbox_events_received",
            "Events made durable, by source and kind of receipt.",
            labels=("source", "receipt"),
        )
        for (source, kind), count in self._received.items():
            received.add_metric((source, kind), count)
        yield received
        refused = CounterMetricFamily(
            "ackbox_events_refused", "Events not taken, by reason.", labels=("reason",)
        )
        for reason, count in self._refused.items():
            refused.add_metric((reason,), count)
        yield refused
        answered = CounterMetricFamily(
            "ackbox_http_answers", "HTTP answers, by route and status.", labels=("route", "status")
        )
        for (route, status), count in self._answered.items():
            answered.add_metric((route, str(status)), count)
        yield answered
        yield self._accept_seconds.metric(
            "ackbox_accept_seconds", "From taking an event to knowing that it is durable."
        )
        yield self._batch_events.metric("ackbox_batch_events", "Events made durable together.")

    def _store_metrics(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "ackbox_record_failures",
            "Batches that could not be stored at once.",
            value=self._record_failures,
        )
        yield CounterMetricFamily(
            "ackbox_store_troubles",
            "Times the store stopped taking events.",
            value=self._troubles,
        )
        yield GaugeMetricFamily(
            "ackbox_store_in_trouble",
            "1 while the store takes no new events.",
            value=self._in_trouble,
        )
        yield self._commit_seconds.metric("ackbox_commit_seconds", "One transaction, synced.")
        yield self._checkpoint_seconds.metric(
            "ackbox_checkpoint_seconds", "One copy of the write-ahead log into the file."
        )
        yield GaugeMetricFamily(
            "ackbox_wal_pages",
            "Pages in the write-ahead log at its last checkpoint.",
            value=self._wal_pages,
        )
        yield GaugeMetricFamily(
            "ackbox_clock_skew_seconds",
            "How far the database's clock is ahead of ours; 0 within 30 s.",
            value=self._clock_skew,
        )

    def _relay_metrics(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "ackbox_queue_troubles",
            "Times the queue of QUEUE_URL could not be used any more.",
            value=self._queue_troubles,
        )
        yield GaugeMetricFamily(
            "ackbox_queue_in_trouble",
            "1 while the queue of QUEUE_URL cannot be used.",
            value=self._queue_in_trouble,
        )

    def _retention_metrics(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "ackbox_events_replayed",
            "Events that got a new run from an operator.",
            value=self._replayed,
        )
        yield CounterMetricFamily(
            "ackbox_events_pruned", "Old events deleted.", value=self._pruned["deleted"]
        )
        yield CounterMetricFamily(
            "ackbox_tombstones_made",
            "Keys of old events kept as tombstones.",
            value=self._pruned["buried"],
        )
        yield CounterMetricFamily(
            "ackbox_tombstones_forgotten",
            "Tombstones deleted after DEDUPE_DAYS.",
            value=self._pruned["forgotten"],
        )
        yield CounterMetricFamily(
            "ackbox_prune_failures",
            "Passes of retention that failed.",
            value=self._prune_failures,
        )

    def _queue_metrics(self, measured: Measured) -> Iterator[Metric]:
        yield _by_status("ackbox_events", "Events in the ledger, by status.", measured.stats)
        yield GaugeMetricFamily(
            "ackbox_queue_depth",
            "Events that wait to be processed.",
            value=measured.stats.pending,
        )
        yield GaugeMetricFamily(
            "ackbox_oldest_pending_seconds",
            "How long the oldest pending event has waited since it was first seen.",
            value=measured.stats.lag(self._clock()).total_seconds(),
        )
        yield GaugeMetricFamily(
            "ackbox_buffer_events",
            "Events taken and not yet durable.",
            value=measured.buffered_events,
        )
        yield GaugeMetricFamily(
            "ackbox_buffer_bytes",
            "Bytes held for events not yet answered.",
            value=measured.buffered_bytes,
        )

    def _start_metrics(self, started: Started) -> Iterator[Metric]:
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


class Histogram:
    """Plain counts: a few tenths of a microsecond an observation, on the hot path."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_all(self, values: Sequence[float]) -> None:
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def metric(self, name: str, text: str) -> Metric:
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(name, text)
        family.add_metric((), buckets, self._sum)
        return family


def _by_status(name: str, text: str, stats: Stats) -> Metric:
    family = GaugeMetricFamily(name, text, labels=("status",))
    for status, count in stats.counts.items():
        family.add_metric((status,), count)
    return family
