"""Facts as metrics (W15)."""

from datetime import timedelta

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ackbox.exporters.prometheus import PrometheusMetrics
from ackbox.model import (
    DeadLetter,
    Done,
    EventId,
    Failure,
    Outcome,
    QuarantineUsage,
    Receipt,
    ReceiptKind,
    RefusalReason,
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
    Fact,
    HandlerAbandoned,
    LeaseLost,
    Measured,
    ObserverFailed,
    Quarantined,
    QuarantineMeasured,
    QuarantineReleased,
    QueueFailed,
    QueueRecovered,
    Recorded,
    RecordFailed,
    Refused,
    ResponseSent,
    RoutesServed,
    ServiceFailed,
    ServiceRecovered,
    ServiceStarted,
    Settled,
    SourceRefused,
    Started,
    StoreFailed,
    StoreRecovered,
    Unhandled,
)
from support.ledgers.events import NOON, envelope, noon
from support.workers.runs import claim

COUNTS = {Status.PENDING: 3, Status.PROCESSING: 2, Status.COMPLETED: 5, Status.FAILED: 1}
STATS = Stats(COUNTS, NOON - timedelta(seconds=90))


def samples(*facts: Fact) -> dict[str, float]:
    metrics = PrometheusMetrics(noon, frozenset({"webhooks"}))
    for fact in facts:
        metrics.observe(fact)
    families: list[Metric] = list(text_string_to_metric_families(metrics.render().decode()))
    return {
        name_of(sample.name, sample.labels): sample.value
        for family in families
        for sample in family.samples
    }


def name_of(name: str, labels: dict[str, str]) -> str:
    return name + "".join(f" {label}={value}" for label, value in sorted(labels.items()))


def recorded(*sources: str, seconds: float = 0.004) -> Recorded:
    receipt = Receipt(ReceiptKind.NEW, EventId("id"), Status.PENDING, NOON)
    sent = [envelope(source=source) for source in sources]
    return Recorded(sent, [receipt] * len(sent), [seconds] * len(sent))


def test_an_unconfigured_source_counts_as_other() -> None:  # F43
    series = samples(recorded("webhooks", "webhooks", "x", "y", "z"))

    received = {name: value for name, value in series.items() if "received" in name and value}
    assert received == {
        "ackbox_events_received_total receipt=new source=webhooks": 2,
        "ackbox_events_received_total receipt=new source=other": 3,
    }


def test_a_bucket_counts_all_values_up_to_its_bound() -> None:
    series = samples(*(recorded("webhooks", seconds=s) for s in (0.001, 0.0011, 0.3, 77)))

    buckets = {le: series[f"ackbox_accept_seconds_bucket le={le}"] for le in
               ("0.001", "0.0025", "0.25", "0.5", "5.0", "+Inf")}  # fmt: skip
    assert buckets == {"0.001": 1, "0.0025": 2, "0.25": 2, "0.5": 3, "5.0": 3, "+Inf": 4}
    assert series["ackbox_accept_seconds_count"] == 4
    assert series["ackbox_accept_seconds_sum"] == 77.3021


def test_facts_are_counted() -> None:
    series = samples(
        ResponseSent("/webhooks", 202),
        ResponseSent("/webhooks", 202),
        ResponseSent("other", 404),
        Refused("queue"),
        RecordFailed(3, "no", retrying=True),
        StoreFailed("full"),
        StoreFailed("full"),
        Committed(2, 0.01),
        Checkpointed(0.2, 4001, 4000),
    )

    expected = {
        "ackbox_http_responses_total route=/webhooks status=202": 2,
        "ackbox_http_responses_total route=other status=404": 1,
        "ackbox_events_refused_total reason=queue": 1,
        "ackbox_record_failures_total": 1,
        "ackbox_store_failures_total": 2,
        "ackbox_store_unavailable": 1,
        "ackbox_commit_seconds_count": 1,
        "ackbox_checkpoint_seconds_count": 1,
        "ackbox_wal_pages": 4001,
    }
    assert expected.items() <= series.items()


def test_runs_are_counted_by_the_outcome_that_was_written() -> None:  # P9
    ended = [claim(key) for key in "abcdefg"]
    failure = Failure("boom", "ValueError")
    outcomes: list[Outcome] = [
        Done(),
        Done(),
        RetryLater(failure, timedelta(0)),
        DeadLetter(failure),
        Release(),
        Snoozed(timedelta(seconds=1)),
    ]
    written = {EventId(key): outcome for key, outcome in zip("abcdef", outcomes, strict=True)}

    handlers = ["app.pay"] * 3 + ["app.ship", None, "app.pay", "app.ship"]
    series = samples(Settled(ended, [0.004] * 6 + [0.3], written, handlers))

    expected = {
        "ackbox_events_processed_total": 2,
        "ackbox_events_errored_total": 1,
        "ackbox_events_dead_letter_total": 1,
        "ackbox_events_released_total": 1,
        "ackbox_events_snoozed_total": 1,  # N17
        "ackbox_events_fenced_total": 1,
        "ackbox_run_seconds_bucket handler=app.pay le=0.005": 4,
        "ackbox_run_seconds_count handler=app.pay": 4,
        "ackbox_run_seconds_bucket handler=app.ship le=0.005": 1,
        "ackbox_run_seconds_count handler=app.ship": 2,
        "ackbox_run_seconds_sum handler=app.ship": 0.304,
    }
    assert expected.items() <= series.items()
    runs = {name: value for name, value in series.items() if name.startswith("ackbox_runs_total")}
    assert {name: value for name, value in runs.items() if value} == {  # N9
        "ackbox_runs_total handler=app.pay outcome=completed": 2,
        "ackbox_runs_total handler=app.pay outcome=retry": 1,
        "ackbox_runs_total handler=app.pay outcome=snoozed": 1,
        "ackbox_runs_total handler=app.ship outcome=dead_letter": 1,
        "ackbox_runs_total handler=app.ship outcome=fenced": 1,
    }


def test_every_series_of_a_handler_exists_from_the_start() -> None:  # N9, C3
    metrics = PrometheusMetrics(lambda: NOON, frozenset())
    metrics.add_handlers(["app.pay"])
    before = series_of(metrics)
    assert {name for name in before if "app.pay" in name and "_total" in name} == {
        *(
            f"ackbox_runs_total handler=app.pay outcome={outcome}"
            for outcome in ("completed", "retry", "dead_letter", "released", "snoozed", "fenced")
        ),
        "ackbox_runs_abandoned_total handler=app.pay",
    }
    first = claim("a")
    metrics.observe(Settled([first], [0.1], {first.id: Done()}, ["app.pay"]))
    metrics.observe(HandlerAbandoned(first, "app.pay", None, ["app.pay"]))
    after = series_of(metrics)
    assert after.keys() == before.keys()
    assert after["ackbox_runs_abandoned_total handler=app.pay"] == 1


def series_of(metrics: PrometheusMetrics) -> dict[str, float]:
    return {
        name_of(sample.name, sample.labels): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }


def test_only_the_first_run_of_an_event_has_waited_in_the_queue() -> None:
    series = samples(Claimed([claim("a"), claim("b", run=2)], [0.3, 77.0]))

    assert series["ackbox_events_claimed_total"] == 2
    assert series["ackbox_queue_seconds_count"] == 1
    assert series["ackbox_queue_seconds_sum"] == 0.3


def test_the_gauge_of_an_outage_is_0_after_the_recovery() -> None:
    series = samples(StoreFailed("full"), StoreRecovered())

    assert series["ackbox_store_unavailable"] == 0
    assert series["ackbox_store_failures_total"] == 1


def test_an_outage_of_the_queue_is_not_one_of_the_store() -> None:
    series = samples(QueueFailed("away"))

    assert series["ackbox_queue_unavailable"] == 1
    assert series["ackbox_queue_failures_total"] == 1
    assert series["ackbox_store_unavailable"] == 0
    series = samples(QueueFailed("away"), QueueRecovered())
    assert series["ackbox_queue_unavailable"] == 0
    assert series["ackbox_queue_failures_total"] == 1


def test_depth_and_age_are_those_of_the_last_measurement() -> None:  # L5
    series = samples(Measured(Stats(COUNTS, NOON), 9, 9), Measured(STATS, 4, 1000))

    expected = {
        "ackbox_queue_depth": 3,
        "ackbox_oldest_pending_seconds": 90,
        "ackbox_buffer_events": 4,
        "ackbox_buffer_bytes": 1000,
        "ackbox_events status=processing": 2,
        "ackbox_events status=failed": 1,
    }
    assert expected.items() <= series.items()


def test_the_backlog_at_the_start_is_exposed() -> None:  # L12
    series = samples(Started(STATS, 90.0, "3.99", "full", "ackbox.db", "DB_PATH"))

    assert series["ackbox_start_pending_events"] == 3
    assert series["ackbox_start_dead_letters"] == 1
    assert series["ackbox_start_oldest_pending_seconds"] == 90


def test_the_age_is_0_when_nothing_is_pending() -> None:
    series = samples(Measured(Stats(COUNTS, None), 0, 0))

    assert series["ackbox_oldest_pending_seconds"] == 0


def test_the_skew_of_the_clocks_is_shown_until_they_agree() -> None:  # F25
    assert samples(ClockSkewed(-90.5))["ackbox_clock_skew_seconds"] == -90.5
    assert samples(ClockSkewed(-90.5), ClockSkewed(0.0))["ackbox_clock_skew_seconds"] == 0


def test_every_combination_of_labels_exists_before_anything_happened() -> None:  # C3, F60
    started = (
        *(RoutesServed({"/webhooks", "other"}, {202, 500}), ServiceStarted("claims")),
        *(Started(STATS, 0.0, "", "", "", ""), Measured(STATS, 0, 0)),
    )

    series = samples(*started)

    labelled = {name for name in series if " " in name and "_bucket " not in name}
    assert labelled == {
        *(
            f"ackbox_events_received_total receipt={kind} source={source}"
            for kind in ReceiptKind
            for source in ("webhooks", "other")
        ),
        *(f"ackbox_events_refused_total reason={reason}" for reason in REFUSAL_REASONS),
        *(
            f"ackbox_source_refusals_total reason={reason} source={source}"
            for reason in RefusalReason
            for source in ("webhooks", "other")
        ),
        *(
            f"ackbox_quarantine_{name} source={source}"
            for name in ("kept_total", "dropped_total", "requests", "bytes")
            for source in ("webhooks", "other")
        ),
        *(
            f"ackbox_http_responses_total route={route} status={status}"
            for route in ("/webhooks", "other")
            for status in (202, 500)
        ),
        *(f"ackbox_events status={status}" for status in Status),
        "ackbox_service_failures_total service=claims",
        "ackbox_service_failing service=claims",
    }
    assert all(series[name] == 0 for name in labelled if "_total" in name)


def test_no_count_adds_a_series_that_was_not_there_from_the_start() -> None:  # C3
    started = RoutesServed({"/webhooks", "other"}, {202, 404}), ServiceStarted("claims")
    before = samples(*started)
    after = samples(
        *started,
        recorded("webhooks", "x"),
        *map(Refused, REFUSAL_REASONS),
        *(ResponseSent("/webhooks", 202), ResponseSent("other", 404)),
        *(ServiceFailed("claims", 1, "x"), ServiceRecovered("claims", 1)),
        *(ServiceFailed("claims", 1, "x"), ObserverFailed("log", "x")),
        LeaseLost([claim("a"), claim("b")], "gone"),
        Unhandled([claim("a"), claim("b"), claim("c")]),
    )

    assert after.keys() == before.keys()
    assert after["ackbox_service_failures_total service=claims"] == 2
    assert after["ackbox_service_failing service=claims"] == 1
    assert after["ackbox_observer_failures_total"] == 1
    assert after["ackbox_leases_lost_total"] == 2  # S27
    assert after["ackbox_events_unhandled_total"] == 3  # N4


def test_refusals_and_the_quarantine_are_counted_by_source() -> None:
    series = samples(
        SourceRefused("webhooks", RefusalReason.BAD_TIME),
        SourceRefused("invented", RefusalReason.BAD_TIME),
        Quarantined("webhooks", 3, 1),
        QuarantineMeasured({"webhooks": QuarantineUsage(3, 900), "gone": QuarantineUsage(1, 50)}),
        QuarantineReleased("ann", 5, 2),
    )
    assert series["ackbox_source_refusals_total reason=bad_time source=webhooks"] == 1
    assert series["ackbox_source_refusals_total reason=bad_time source=other"] == 1
    assert series["ackbox_quarantine_kept_total source=webhooks"] == 3
    assert series["ackbox_quarantine_dropped_total source=webhooks"] == 1
    assert series["ackbox_quarantine_requests source=webhooks"] == 3
    assert series["ackbox_quarantine_bytes source=webhooks"] == 900
    assert series["ackbox_quarantine_bytes source=other"] == 50
    assert series["ackbox_quarantine_released_total"] == 2
