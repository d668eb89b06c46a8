"""Facts as log lines (W14)."""

import asyncio
import io
import json
import logging
import sysconfig
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest
import structlog

from ackbox.exporters.failures import count_and_log
from ackbox.exporters.loggers import set_up_logging
from ackbox.exporters.logs import LogObserver
from ackbox.model import (
    DeadLetter,
    Done,
    EventId,
    Failure,
    Outcome,
    Receipt,
    ReceiptKind,
    RetryLater,
    Snoozed,
    Stats,
    Status,
)
from ackbox.telemetry import (
    RUNNING,
    AbandonedEnded,
    Checkpointed,
    ClockSkewed,
    ClockStepped,
    Committed,
    Fact,
    HandlerAbandoned,
    LeaseLost,
    Measured,
    ObserverFailed,
    Quarantined,
    QuarantineLoss,
    Recorded,
    RecordFailed,
    Refused,
    ResponseSent,
    ServiceFailed,
    ServiceRecovered,
    Settled,
    Started,
    StopBegan,
    StopEnded,
    StoreFailed,
    StoreRecovered,
    Unhandled,
    WorkerCallFailed,
    combine_observers,
)
from support.ledgers.events import NOON, envelope
from support.ledgers.facts import Facts
from support.workers.runs import claim

COUNTS = dict.fromkeys(Status, 0)
FAILED = RecordFailed(3, "disk full", retrying=True)
TRACEBACK = 'Traceback (most recent call last):\n  File "/app.py", line 12, in grant_access'


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Log:
    """A log observer and its lines. Its clock stands still until a test moves it."""

    def __init__(self, level: str = "INFO", log_format: str = "json") -> None:
        self.stream = io.StringIO()
        self.now = 0.0
        self.logger = set_up_logging(level, log_format, self.stream)
        self.observe = LogObserver(self.logger, lambda: self.now).observe

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def entries(self) -> list[tuple[str, str]]:
        return [(line["level"], line["event"]) for line in self.lines()]


def recorded(kind: ReceiptKind = ReceiptKind.NEW) -> Recorded:
    sent = envelope("secret-key", b'"secret"', event_type="a.b", request_id="req")
    return Recorded([sent], [Receipt(kind, EventId("id"), Status.PENDING, NOON)], [0.001])


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (ReceiptKind.NEW, "event received"),
        (ReceiptKind.DUPLICATE, "event duplicate"),
        (ReceiptKind.CONFLICT, "event conflict"),
    ],
)
def test_each_event_is_a_line_with_event_and_request_id(kind: ReceiptKind, event: str) -> None:
    log = Log()

    log.observe(recorded(kind))

    (line,) = log.lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": event,
        "level": "info",
        "event_id": "id",
        "request_id": "req",
        "source": "webhooks",
        "event_type": "a.b",
    }
    assert "secret" not in log.stream.getvalue()


@pytest.mark.parametrize("level", ["WARNING", "ERROR", "CRITICAL"])
def test_events_are_not_logged_above_info(level: str) -> None:
    log = Log(level)

    log.observe(recorded())

    assert log.lines() == []


def settled(*keys: str, dead: str = "", fenced: str = "") -> Settled:
    dead_letter = DeadLetter(Failure("boom", "ValueError"))
    written = {
        EventId(key): dead_letter if key == dead else Done() for key in keys if key != fenced
    }
    handlers = ["app.pay"] * len(keys)
    return Settled([claim(key) for key in keys], [0.001] * len(keys), written, handlers)


def test_above_info_only_dead_letters_and_fenced_results_are_logged() -> None:
    log = Log("WARNING")

    log.observe(settled("a", "b"))
    log.observe(settled("a", "b", dead="b"))
    log.observe(settled("c", "d", fenced="c"))

    assert log.entries() == [("error", "event failed"), ("warning", "event result fenced off")]
    assert [line["event_id"] for line in log.lines()] == ["b", "c"]


def test_the_end_of_each_run_is_logged() -> None:
    log = Log()

    log.observe(settled("a", "b"))

    assert log.entries() == [("info", "event completed")] * 2


def test_the_start_logs_the_backlog_and_the_ledger() -> None:  # L12
    log = Log()

    log.observe(
        Started(
            Stats({**COUNTS, Status.PENDING: 7}, NOON), 3.14, "3.99", "full", "ackbox.db", "DB_PATH"
        )
    )

    (line,) = log.lines()
    assert (line["event"], line["pending"], line["oldest_pending_seconds"]) == ("ready", 7, 3.1)
    assert (line["ledger"], line["ledger_origin"]) == ("ackbox.db", "DB_PATH")  # N3


def test_a_failure_that_lasts_is_logged_once_a_minute() -> None:  # F9
    log = Log()
    for second in range(121):
        log.now = float(second)
        log.observe(FAILED)

    assert log.entries() == [("error", "events not stored")] * 3


def test_a_failure_after_a_recovery_is_logged_at_once() -> None:
    log = Log()
    for fact in (FAILED, FAILED, StoreFailed("full"), StoreRecovered(), FAILED):
        log.observe(fact)

    assert [event for _, event in log.entries()] == [
        "events not stored",
        "store unavailable",
        "store recovered",
        "events not stored",
    ]


def test_an_outage_is_logged_at_its_start_once_a_minute_and_at_its_end() -> None:  # N21
    log = Log()
    log.observe(StoreFailed("away"))
    for half in range(4 * 60):  # two minutes, in which every part of the process fails
        log.now = half / 2
        log.observe(WorkerCallFailed("claim", "away"))
        log.observe(WorkerCallFailed("settle", "away"))
        log.observe(WorkerCallFailed("renew", "away"))
        log.observe(FAILED)
        log.observe(ServiceFailed("monitor", half + 1, "away"))
    log.observe(StoreRecovered())

    events = [event for _, event in log.entries()]
    assert events == ["store unavailable", "worker cannot reach the store", "store recovered"]


def test_a_failure_of_the_worker_without_an_outage_is_logged_once_a_minute_for_each_kind() -> None:
    log = Log()  # N21
    for second in range(61):
        log.now = float(second)
        log.observe(WorkerCallFailed("claim", "busy"))
        log.observe(WorkerCallFailed("settle", "busy"))

    calls = [(line["doing"], line["level"]) for line in log.lines()]
    assert calls == [("claim", "warning"), ("settle", "warning")] * 2


def test_a_lost_lease_is_logged_for_each_event() -> None:  # S27
    log = Log()
    log.observe(LeaseLost([claim("a"), claim("b", run=3)], "the store was away"))

    assert log.entries() == [("warning", "event lease lost")] * 2
    assert [(line["event_id"], line["run"]) for line in log.lines()] == [("a", 1), ("b", 3)]
    assert log.lines()[0]["reason"] == "the store was away"


def test_a_service_that_fails_is_logged_once_a_minute_and_its_recovery_once() -> None:  # S26, F56
    log = Log()
    for second in range(61):
        log.now = float(second)
        log.observe(ServiceFailed("claims", second + 1, "ValueError"))
    log.observe(ServiceRecovered("claims", 61))
    for number in range(10):  # it fails every other time
        log.observe(ServiceFailed("claims", 1, "ValueError"))
        log.observe(ServiceRecovered("claims", 1))
        log.now += number

    assert log.entries() == [
        *(("error", "service failed"), ("error", "service failed")),
        *(("warning", "service recovered"),),
    ]
    assert log.lines()[0]["service"] == "claims"
    assert log.lines()[1]["failures"] == 61


def test_an_observer_that_fails_is_logged_once_and_counted_each_time() -> None:  # S26, F56
    log, counted = Log(), Facts()

    def broken(fact: Fact) -> None:
        raise ValueError("secret")

    on_error = count_and_log(counted, log.logger)
    observe = combine_observers(broken, log.observe, on_error=on_error)
    for _ in range(3):
        observe(StoreRecovered())

    lines = [line for line in log.lines() if line["event"] == "observer failed"]
    assert [line["observer"].rpartition(".")[2] for line in lines] == ["broken"]
    assert lines[0]["error"].startswith("ValueError in broken")
    assert len(counted.of(ObserverFailed)) == 3
    assert [event for _, event in log.entries()].count("store recovered") == 3


def test_metrics_that_fail_on_every_fact_are_still_logged() -> None:  # S26, F56
    log = Log()

    def broken(fact: Fact) -> None:
        raise ValueError("x")

    combine_observers(broken, on_error=count_and_log(broken, log.logger))(StoreRecovered())
    assert log.entries() == [("error", "observer failed")]


def test_a_log_that_cannot_be_written_stops_nothing() -> None:  # S26, F56
    log, counted = Log(), Facts()
    log.stream.close()

    observe = combine_observers(log.observe, on_error=count_and_log(counted, log.logger))
    for _ in range(2):
        observe(StoreRecovered())

    assert len(counted.of(ObserverFailed)) == 2


def test_a_snooze_is_logged_with_its_reason_and_delay() -> None:  # N17
    log = Log()
    snoozed = Snoozed(timedelta(seconds=90), "rate limited")
    log.observe(Settled([claim("a")], [0.1], {EventId("a"): snoozed}, [None]))
    (line,) = log.lines()
    assert (line["event"], line["level"]) == ("event snoozed", "info")
    assert (line["seconds"], line["reason"], line["event_id"]) == (90.0, "rate limited", "a")


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (lambda failure: RetryLater(failure, timedelta(seconds=5)), "event retry scheduled"),
        (DeadLetter, "event failed"),
    ],
)
def test_a_failed_run_is_logged_with_the_exception_and_its_location(
    make: Callable[[Failure], Outcome], event: str
) -> None:  # N2
    log, run = Log(), claim()
    for where, traceback in (("grant_access (app.py:12)", TRACEBACK), (None, None)):
        outcome = make(Failure("KeyError: 'amount'", "KeyError", where, traceback))
        log.observe(Settled([run], [0.1], {run.id: outcome}, ["app.pay"]))

    known, unknown = log.lines()
    assert (known["event"], known["error_code"]) == (event, "KeyError")
    assert known["error"] == "KeyError: 'amount'"
    assert known["where"] == "grant_access (app.py:12)"
    assert known["exception"] == TRACEBACK
    assert {"where", "exception"}.isdisjoint(unknown)


def test_a_pretty_log_shows_the_traceback_below_the_line() -> None:  # N2
    log, run = Log(log_format="pretty"), claim()

    dead = DeadLetter(Failure("KeyError: 'amount'", "KeyError", None, TRACEBACK))
    log.observe(Settled([run], [0.1], {run.id: dead}, ["app.pay"]))

    line, *below = log.stream.getvalue().splitlines()
    assert "event failed" in line
    assert "amount" in line
    assert below == TRACEBACK.splitlines()


def test_the_text_of_an_exception_stays_on_its_line() -> None:  # N2
    log, run = Log(), claim()

    dead = DeadLetter(Failure("ValueError: \x1b[31m\n" + "x" * 9000, "ValueError"))
    log.observe(Settled([run], [0.1], {run.id: dead}, ["app.pay"]))

    (line,) = log.lines()
    assert line["error"].startswith(r"ValueError: \x1b[31m xxx")
    assert len(line["error"]) < 600


def test_an_abandoned_handler_is_named_with_its_event_and_stack() -> None:  # N9
    log = Log()

    log.observe(HandlerAbandoned(claim("a"), "app.grant", TRACEBACK, ["app.grant (event a)"]))
    log.observe(AbandonedEnded(claim("a"), "app.grant", Failure("KeyError: 1", "KeyError"), 0))
    log.observe(AbandonedEnded(claim("a"), "app.grant", None, 0))

    assert log.entries() == [
        ("error", "handler abandoned"),
        ("warning", "abandoned handler ended"),
        ("warning", "abandoned handler ended"),
    ]
    hung, failed, returned = log.lines()
    assert (hung["handler"], hung["event_id"], hung["abandoned"]) == ("app.grant", "a", 1)
    assert hung["stack"] == TRACEBACK
    assert (failed["error"], failed["handler"], failed["event_id"]) == (
        "KeyError: 1",
        "app.grant",
        "a",
    )
    assert "error" not in returned


def test_a_large_write_ahead_log_is_a_warning_and_a_small_one_is_not() -> None:  # F35
    log = Log()

    log.observe(Checkpointed(0.1, 4000, 4000))
    log.observe(Checkpointed(0.1, 20_000, 0))

    assert log.entries() == [("warning", "write-ahead log is large")]


def test_a_clock_that_disagrees_with_the_database_is_a_warning() -> None:  # F25
    log = Log()

    log.observe(ClockSkewed(-3600.04))
    log.observe(ClockSkewed(0.0))

    assert log.entries() == [("warning", "clocks disagree"), ("warning", "clocks agree again")]
    assert log.lines()[0]["seconds"] == -3600.0


def test_routine_facts_are_not_logged() -> None:
    log = Log("DEBUG")
    for fact in (ResponseSent("/webhooks", 202), Committed(1, 0.1), Refused("queue"),
                 Measured(Stats(COUNTS, None), 0, 0)):  # fmt: skip
        log.observe(fact)

    assert log.lines() == []


def log_from(path: str, name: str, level: int, text: str) -> None:
    """Log a record as code in that file would."""
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(name, level, path, 1, text, (), None))


LIBRARY = f"{sysconfig.get_paths()['purelib']}/library/module.py"


def test_records_of_libraries_are_logged_from_warning_up() -> None:  # N16
    log = Log("DEBUG")
    log_from(LIBRARY, "library", logging.WARNING, "hello")
    log_from(LIBRARY, "library", logging.INFO, "not this")
    log_from(asyncio.__file__, "asyncio", logging.DEBUG, "nor this")

    (line,) = log.lines()
    assert (line["event"], line["logger"], line["level"]) == ("hello", "library", "warning")


@pytest.mark.parametrize(
    ("level", "written"), [("DEBUG", ["debug", "info"]), ("INFO", ["info"]), ("WARNING", [])]
)
def test_records_of_the_application_are_logged_from_the_level_up(
    level: str, written: list[str]
) -> None:  # N16
    log = Log(level)
    logging.getLogger("billing").debug("a")
    logging.getLogger("billing").info("b")

    assert [line["level"] for line in log.lines()] == written


def test_an_installed_application_still_counts_as_the_application() -> None:  # N16
    stream = io.StringIO()
    set_up_logging("INFO", "json", stream, {"billing"})
    log_from(LIBRARY, "billing.invoices", logging.INFO, "this")
    log_from(LIBRARY, "library", logging.INFO, "not this")

    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["logger"] == "billing.invoices"


def test_a_line_of_a_running_handler_names_its_event() -> None:  # N16
    log = Log()

    def handler() -> None:
        RUNNING.set(claim("a", request_id="req"))
        logging.getLogger("billing").info("in a handler")
        structlog.get_logger().info("in a handler")
        log.logger.info("of another", event_id="b")

    copy_context().run(handler)
    logging.getLogger("billing").info("outside")

    ids = [(line.get("event_id"), line.get("request_id")) for line in log.lines()]
    assert ids == [("a", "req"), ("a", "req"), ("b", "req"), (None, None)]


def test_a_type_without_a_handler_is_logged_once_up_to_a_hundred_types() -> None:  # N4
    log = Log()
    for number in range(150):
        log.observe(Unhandled([claim("a", event_type=f"type-{number}"), claim("b")]))

    assert log.entries() == [("warning", "no handler for this event type")] * 100


def test_a_stop_is_logged_when_it_begins_and_when_it_ends() -> None:  # N7
    log = Log()
    log.observe(StopBegan({"grant_access": 2}, 3, 20.0))
    log.observe(StopEnded(4, 20.12345))

    begun, ended = log.lines()
    assert (begun["event"], begun["running"], begun["queued"], begun["grace_seconds"]) == (
        *("stopping", {"grant_access": 2}, 3, 20.0),
    )
    assert (ended["event"], ended["released"], ended["seconds"]) == ("stopped", 4, 20.123)


def test_an_exception_of_a_library_is_logged_with_its_traceback() -> None:
    log = Log()
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("somewhere").exception("oh no")

    assert "ValueError: broken" in log.lines()[0]["exception"]


@pytest.mark.parametrize("log_format", ["json", "pretty"])
def test_a_traceback_never_shows_local_variables(log_format: str) -> None:  # S8
    log = Log(log_format=log_format)
    planted = "swordfish-" * 2
    try:
        raise ValueError(f"{len(planted)} characters")
    except ValueError:
        logging.getLogger("somewhere").exception("oh no")
        log.logger.exception("oh no")

    written = log.stream.getvalue()
    assert written.count("ValueError: 20 characters") == 2
    assert "swordfish-swordfish-" not in written


def test_a_pretty_log_has_one_line_for_each_event() -> None:
    log = Log(log_format="pretty")

    log.observe(recorded())

    (line,) = log.stream.getvalue().splitlines()
    assert "event received" in line
    assert "request_id=req" in line
    assert "\x1b" not in line  # no colours where there is no terminal


def test_a_log_that_cannot_be_written_raises_nothing() -> None:  # F9
    attempts = []

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            attempts.append(text)
            raise OSError(28, "No space left on device")

    LogObserver(set_up_logging("INFO", "json", Full())).observe(recorded())
    assert "event received" in "".join(attempts)


def test_a_clock_that_was_set_is_a_warning() -> None:  # F25
    log = Log()
    log.observe(ClockStepped(-3600.00049))
    assert log.entries() == [("warning", "clock was set")]
    assert log.lines()[0]["seconds"] == -3600


# N23
def test_a_start_that_refuses_new_events_does_not_say_ready() -> None:
    log = Log()

    log.observe(
        Started(
            Stats(COUNTS, None), 0.0, "3.99", "full", "ackbox.db", "DB_PATH", "The disk is full."
        )
    )

    assert log.entries() == [("error", "started, new events are refused")]
    assert log.lines()[0]["reason"] == "The disk is full."


def test_the_quarantine_is_logged_once_a_minute_for_each_source() -> None:
    log = Log()
    for source in ("github", "github", "stripe"):
        log.observe(Quarantined(source, 2, 1))
    kept, full = ("warning", "requests quarantined"), ("error", "quarantine is full")
    assert log.entries() == [kept, full, kept, full]
    log.now += 61
    log.observe(Quarantined("github", 2, 0))
    assert log.entries()[4:] == [kept]
    assert log.lines()[-1]["source"] == "github"


def test_a_quarantine_with_room_is_not_logged_as_full() -> None:
    log = Log()
    for _ in range(2):
        log.observe(Quarantined("github", 0, 1, QuarantineLoss.TOO_LARGE))
    assert log.entries() == [("error", "requests not quarantined")]
    assert "larger than the share" in log.lines()[0]["reason"]
