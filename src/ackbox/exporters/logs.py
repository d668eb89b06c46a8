"""Facts as log lines (W14).

Lines about events have the event id and the request id, never a payload, a header or a key. The
text of an exception that a handler raised is logged: the handler chose it.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from ackbox.exporters.loggers import Logger
from ackbox.exporters.quarantine_log import QuarantineLog
from ackbox.exporters.refusals import RefusalLog
from ackbox.model import (
    Claim,
    DeadLetter,
    Done,
    Envelope,
    Failure,
    Outcome,
    Receipt,
    ReceiptKind,
    Release,
    RetryLater,
    Snoozed,
    Status,
)
from ackbox.telemetry import (
    AbandonedEnded,
    Checkpointed,
    Claimed,
    ClockSkewed,
    ClockStepped,
    Discarded,
    Fact,
    HandlerAbandoned,
    LeaseLost,
    LedgerRestored,
    LoopBlocked,
    Pruned,
    PruneFailed,
    QueueFailed,
    QueueRecovered,
    Recorded,
    RecordFailed,
    Replayed,
    RequestRefused,
    RetentionPaused,
    ServiceFailed,
    ServiceRecovered,
    Settled,
    SpaceReclaimed,
    Started,
    StopBegan,
    StopEnded,
    StoreFailed,
    StoreRecovered,
    Unhandled,
    WorkerCallFailed,
)
from ackbox.text import one_line

_SECONDS_BETWEEN_FAILURES = 60.0
_OUTAGE = "outage"
_UNHANDLED_TYPES = 100
_ALARMING_WAL_PAGES = 16_384
_ERROR_CHARACTERS = 500
_NAMES = {
    ReceiptKind.NEW: "event received",
    ReceiptKind.DUPLICATE: "event duplicate",
    ReceiptKind.CONFLICT: "event conflict",
}


class _Throttle:
    """Allow one line for each subject, then one a minute until the subject is reset."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._muted_until: dict[str, float] = {}

    def allows(self, subject: str) -> bool:
        now = self._clock()
        if now < self._muted_until.get(subject, now):
            return False
        self.mute(subject)
        return True

    def mute(self, subject: str) -> None:
        self._muted_until[subject] = self._clock() + _SECONDS_BETWEEN_FAILURES

    def reset(self, subject: str) -> None:
        self._muted_until.pop(subject, None)


class LogObserver:
    """Log facts. A failure that lasts is logged once a minute, not once a batch (F9, N21). All
    failures during an outage of the store share one line a minute."""

    def __init__(self, logger: Logger, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._logs_events = logger.is_enabled_for(logging.INFO)
        self._throttle = _Throttle(clock)
        self._store_unavailable = False
        self._services_failed: set[str] = set()
        self._unhandled: set[tuple[str, str]] = set()
        self._lines: dict[type, Callable[[Any], None]] = {
            Recorded: self._log_recorded,
            RecordFailed: self._log_failed,
            Started: self._log_started,
            StoreFailed: self._log_store_failed,
            StoreRecovered: self._log_recovered,
            Checkpointed: self._log_log_size,
            Claimed: self._log_claimed,
            Settled: self._log_settled,
            HandlerAbandoned: self._log_abandoned,
            AbandonedEnded: self._log_abandoned_ended,
            WorkerCallFailed: self._log_worker_call_failed,
            QueueFailed: self._log_queue_failed,
            QueueRecovered: self._log_queue_recovered,
            Unhandled: self._log_unhandled,
            StopBegan: self._log_stop_began,
            StopEnded: self._log_stop_ended,
            LeaseLost: self._log_lease_lost,
            ServiceFailed: self._log_service_failed,
            ServiceRecovered: self._log_service_recovered,
            LoopBlocked: self._log_blocked,
            ClockSkewed: self._log_skewed,
            Pruned: self._log_pruned,
            SpaceReclaimed: self._log_reclaimed,
            PruneFailed: self._log_prune_failed,
            RetentionPaused: self._log_retention_paused,
            Replayed: self._log_replayed,
            Discarded: self._log_discarded,
            LedgerRestored: self._log_restored,
            ClockStepped: self._log_stepped,
            RequestRefused: RefusalLog(logger, clock).log,
            **QuarantineLog(logger, self._throttle.allows).lines,
        }

    def observe(self, fact: Fact) -> None:
        if (log := self._lines.get(type(fact))) is not None:
            log(fact)

    def _log_recorded(self, fact: Recorded) -> None:
        if self._logs_events:
            for envelope, receipt in zip(fact.envelopes, fact.receipts, strict=True):
                self._log_received(envelope, receipt)

    def _log_claimed(self, fact: Claimed) -> None:
        if self._logs_events:
            for claim in fact.claims:
                self._logger.info("event started", **_run(claim))

    def _log_settled(self, fact: Settled) -> None:
        if not self._logs_events and _is_uneventful(fact):
            return
        for claim in fact.claims:
            outcome = fact.written.get(claim.id)
            if outcome is None:
                self._logger.warning("event result fenced off", **_run(claim))
            elif self._logs_events or isinstance(outcome, DeadLetter):
                self._log_outcome(claim, outcome)

    def _log_outcome(self, claim: Claim, outcome: Outcome) -> None:
        about = _run(claim)
        match outcome:
            case Done(name):
                self._logger.info("event completed", outcome=name, **about)
            case RetryLater(failure, delay):
                seconds = round(delay.total_seconds(), 3)
                self._logger.info(
                    "event retry scheduled", seconds=seconds, **_reason(failure), **about
                )
            case DeadLetter(failure):
                self._logger.error("event failed", **_reason(failure), **about)
            case Snoozed(delay, reason):
                seconds = round(delay.total_seconds(), 3)
                self._logger.info("event snoozed", seconds=seconds, reason=reason, **about)
            case Release():
                self._logger.info("event released", **about)

    def _may_log(self, subject: str) -> bool:
        """Return whether to log a failure now. During an outage all failures are one subject."""
        return self._throttle.allows(_OUTAGE if self._store_unavailable else subject)

    def _log_store_failed(self, fact: StoreFailed) -> None:
        self._store_unavailable = True
        self._throttle.mute(_OUTAGE)
        self._logger.error("store unavailable", reason=fact.reason)

    def _log_recovered(self, fact: StoreRecovered) -> None:
        self._store_unavailable = False
        for subject in (_OUTAGE, "record"):
            self._throttle.reset(subject)
        self._logger.warning("store recovered")

    def _log_log_size(self, fact: Checkpointed) -> None:
        if fact.wal_pages > _ALARMING_WAL_PAGES:
            self._logger.warning(
                "write-ahead log is large", pages=fact.wal_pages, copied=fact.copied_pages
            )

    def _log_abandoned(self, fact: HandlerAbandoned) -> None:
        self._logger.error(
            "handler abandoned",
            handler=fact.handler,
            abandoned=len(fact.hung),
            **({} if fact.stack is None else {"stack": fact.stack}),
            **_run(fact.claim),
        )

    def _log_abandoned_ended(self, fact: AbandonedEnded) -> None:
        failed = {} if fact.failure is None else _reason(fact.failure)
        self._logger.warning(
            "abandoned handler ended",
            handler=fact.handler,
            abandoned=fact.left,
            **failed,
            **_run(fact.claim),
        )

    def _log_worker_call_failed(self, fact: WorkerCallFailed) -> None:
        if self._may_log(fact.doing):
            self._logger.warning(
                "worker cannot reach the store", doing=fact.doing, error=fact.error
            )

    def _log_unhandled(self, fact: Unhandled) -> None:
        """Log one line for each type. Types come from senders, so their number is bounded."""
        for claim in fact.claims:
            kind = (claim.source, claim.event_type)
            if kind not in self._unhandled and len(self._unhandled) < _UNHANDLED_TYPES:
                self._unhandled.add(kind)
                self._logger.warning("no handler for this event type", **_run(claim))

    def _log_stop_began(self, fact: StopBegan) -> None:
        self._logger.info(
            "stopping", running=dict(fact.running), queued=fact.queued, grace_seconds=fact.grace
        )

    def _log_stop_ended(self, fact: StopEnded) -> None:
        self._logger.info("stopped", released=fact.released, seconds=round(fact.seconds, 3))

    def _log_lease_lost(self, fact: LeaseLost) -> None:
        for claim in fact.claims:
            self._logger.warning("event lease lost", reason=fact.reason, **_run(claim))

    def _log_service_failed(self, fact: ServiceFailed) -> None:
        if self._may_log(f"service {fact.name}"):
            self._services_failed.add(fact.name)
            self._logger.error(
                "service failed", service=fact.name, failures=fact.failures, error=fact.error
            )

    def _log_service_recovered(self, fact: ServiceRecovered) -> None:
        """Log a recovery only if the failure was logged: a loop that fails every other time is then
        not logged more often than a loop that always fails."""
        if fact.name in self._services_failed:
            self._services_failed.discard(fact.name)
            self._logger.warning("service recovered", service=fact.name, failures=fact.failures)

    def _log_queue_failed(self, fact: QueueFailed) -> None:
        self._logger.warning("queue unavailable", reason=fact.reason)

    def _log_queue_recovered(self, fact: QueueRecovered) -> None:
        self._logger.warning("queue recovered")

    def _log_blocked(self, fact: LoopBlocked) -> None:
        self._logger.error("event loop is blocked", where=fact.where)

    def _log_skewed(self, fact: ClockSkewed) -> None:
        if fact.seconds:
            self._logger.warning("clocks disagree", seconds=round(fact.seconds, 1))
        else:
            self._logger.warning("clocks agree again")

    def _log_pruned(self, fact: Pruned) -> None:
        if fact.tombstoned or fact.deleted or fact.purged or fact.audit or fact.quarantined:
            self._logger.info(
                "ledger pruned",
                tombstoned=fact.tombstoned,
                deleted=fact.deleted,
                purged=fact.purged,
                audit=fact.audit,
                quarantined=fact.quarantined,
                seconds=round(fact.seconds, 3),
            )

    def _log_reclaimed(self, fact: SpaceReclaimed) -> None:
        self._logger.info("space reclaimed", pages=fact.pages)

    def _log_prune_failed(self, fact: PruneFailed) -> None:
        self._logger.error("ledger not pruned", error=fact.error)

    def _log_retention_paused(self, fact: RetentionPaused) -> None:
        self._logger.warning(
            "retention paused", behind_seconds=round(fact.behind), seconds=round(fact.seconds)
        )

    def _log_replayed(self, fact: Replayed) -> None:
        self._logger.info(
            "events replayed", actor=fact.actor, events=fact.events, changed=fact.changed
        )

    def _log_discarded(self, fact: Discarded) -> None:
        self._logger.info(
            "events discarded", actor=fact.actor, events=fact.events, changed=fact.changed
        )

    def _log_restored(self, fact: LedgerRestored) -> None:
        self._logger.warning("ledger was restored from SQL", path=fact.path)

    def _log_stepped(self, fact: ClockStepped) -> None:
        self._logger.warning("clock was set", seconds=round(fact.seconds, 3))

    def _log_received(self, envelope: Envelope, receipt: Receipt) -> None:
        self._logger.info(
            _NAMES[receipt.kind],
            event_id=receipt.id,
            request_id=envelope.request_id,
            source=envelope.source,
            event_type=envelope.event_type,
        )

    def _log_failed(self, fact: RecordFailed) -> None:
        if self._may_log("record"):
            self._logger.error(
                "events not stored", events=fact.events, error=fact.error, retrying=fact.retrying
            )

    def _log_started(self, fact: Started) -> None:
        fields = {
            "pending": fact.stats.pending,
            "dead_letters": fact.stats.counts[Status.FAILED],
            "oldest_pending_seconds": round(fact.lag_seconds, 1),
            "engine": fact.engine,
            "durability": fact.durability,
            "ledger": fact.ledger,
            "ledger_origin": fact.ledger_origin,
        }
        if fact.refuses is None:
            self._logger.info("ready", **fields)
        else:
            self._logger.error("started, new events are refused", reason=fact.refuses, **fields)


def _run(claim: Claim) -> dict[str, Any]:
    """Return the fields that name a run of an event, for every line about it."""
    return {
        "event_id": claim.id,
        "request_id": claim.request_id,
        "source": claim.source,
        "event_type": claim.event_type,
        "attempt": claim.attempts,
        "run": claim.run,
    }


def _reason(failure: Failure) -> dict[str, Any]:
    """Return the fields of a failure. structlog shows `exception` as a traceback below the line."""
    known = {"where": failure.where, "exception": failure.traceback}
    return {
        "error_code": failure.code,
        "error": one_line(failure.error, _ERROR_CHARACTERS),
        **{name: value for name, value in known.items() if value is not None},
    }


def _is_uneventful(fact: Settled) -> bool:
    """Return whether the batch needs no line at WARNING or above. Nearly all batches need none, so
    decide this without looking at single events."""
    written = fact.written.values()
    return len(written) == len(fact.claims) and DeadLetter not in set(map(type, written))
