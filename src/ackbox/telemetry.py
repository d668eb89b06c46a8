"""Facts: small values that say what happened. The core emits them, and exporters observe them.

This module knows neither logs nor Prometheus. Facts about events come in batches, so that they cost
one call for each commit, not one for each event.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from enum import StrEnum

from msgspec import Struct

from ackbox.model import (
    Claim,
    Envelope,
    EventId,
    Failure,
    Outcome,
    QuarantineUsage,
    Receipt,
    RefusalReason,
    Stats,
)


class Started(Struct, frozen=True):
    """The inbox has started, with these events in its ledger (L12). `ledger_origin` is the
    variable, file or default that chose the ledger. `refuses` says why new events are not accepted;
    None means that they are."""

    stats: Stats
    lag_seconds: float
    engine: str
    durability: str
    ledger: str
    ledger_origin: str
    refuses: str | None = None


class Recorded(Struct, frozen=True):
    """These envelopes are durable; `seconds` is the time each one waited after it was accepted.
    Events that handlers sent have no such time: they were durable when they were accepted."""

    envelopes: Sequence[Envelope]
    receipts: Sequence[Receipt]
    seconds: Sequence[float]


REFUSAL_REASONS = frozenset(
    {"buffer_events", "buffer_bytes", "slow_body", "queue", "unavailable", "timeout"}
)


class Refused(Struct, frozen=True):
    """An event was not accepted, for one of `REFUSAL_REASONS`."""

    reason: str


class RecordFailed(Struct, frozen=True):
    """A batch could not be stored; `retrying` says whether it will be retried."""

    events: int
    error: str
    retrying: bool


class Committed(Struct, frozen=True):
    """The writer committed one transaction, which `operations` operations shared."""

    operations: int
    seconds: float


class Checkpointed(Struct, frozen=True):
    """The write-ahead log was copied back into the database file."""

    seconds: float
    wal_pages: int
    copied_pages: int


class StoreFailed(Struct, frozen=True):
    """New events cannot be recorded; `public_reason` is the part of the reason that senders may
    read."""

    reason: str
    public_reason: str | None = None


class StoreRecovered(Struct, frozen=True):
    """New events can be recorded again."""


class Claimed(Struct, frozen=True):
    """A worker claimed these runs; `waited` is the seconds since each could first have run."""

    claims: Sequence[Claim]
    waited: Sequence[float]


class Settled(Struct, frozen=True):
    """These runs ended after `seconds` each. `written` has the outcomes that were stored, for the
    runs whose claim was still valid. `handlers` names the handler that ran, None if none did."""

    claims: Sequence[Claim]
    seconds: Sequence[float]
    written: Mapping[EventId, Outcome]
    handlers: Sequence[str | None]


class HandlerAbandoned(Struct, frozen=True):
    """A handler still runs after its time-out; `stack` is where it was then. `hung` names every
    handler that was abandoned and has not ended, this one last."""

    claim: Claim
    handler: str
    stack: str | None
    hung: Sequence[str]


class AbandonedEnded(Struct, frozen=True):
    """An abandoned handler has ended; its run was settled when it was abandoned. `failure` is what
    the handler raised; `left` is how many others still hang."""

    claim: Claim
    handler: str
    failure: Failure | None
    left: int


class WorkerCallFailed(Struct, frozen=True):
    """A claim, renewal or settlement did not reach the store; it will be retried."""

    doing: str
    error: str


class QueueFailed(Struct, frozen=True):
    """The queue that carries new events to the workers cannot be used. Workers find the events in
    the database, only later."""

    reason: str


class QueueRecovered(Struct, frozen=True):
    """The queue carries new events again."""


RUNNING: ContextVar[Claim | None] = ContextVar("ackbox_running", default=None)
"""The claim whose handler runs in this context, for the log lines of the application."""


class Unhandled(Struct, frozen=True):
    """No handler matches these events: each is completed as `ignored`, or parked (N4)."""

    claims: Sequence[Claim]


class StopBegan(Struct, frozen=True):
    """A stop began: the runs that `running` counts by handler have `grace` seconds to end (N7)."""

    running: Mapping[str, int]
    queued: int
    grace: float


class StopEnded(Struct, frozen=True):
    """The stop has ended after `seconds`; `released` events went back to the queue."""

    released: int
    seconds: float


class LeaseLost(Struct, frozen=True):
    """This process lost these claims: their runs are stopped, their results fenced off (S27)."""

    claims: Sequence[Claim]
    reason: str


class ServiceStarted(Struct, frozen=True):
    """A background loop of the process has started."""

    name: str


class ServiceFailed(Struct, frozen=True):
    """A background loop raised, for the `failures`-th time in a row; it is restarted (F56)."""

    name: str
    failures: int
    error: str


class ServiceRecovered(Struct, frozen=True):
    """A background loop works again after `failures` failures in a row."""

    name: str
    failures: int


class ObserverFailed(Struct, frozen=True):
    """An observer raised on a fact; nothing else was affected (F56)."""

    observer: str
    error: str


class LoopBlocked(Struct, frozen=True):
    """The event loop did not respond; `where` is the code that it was running."""

    where: str


class ClockSkewed(Struct, frozen=True):
    """The database's clock is `seconds` ahead of ours; 0 means that they agree again. Only the
    database's clock decides on leases and due times. If it is wrong, comparisons with times from
    elsewhere are wrong (F25)."""

    seconds: float


class Pruned(Struct, frozen=True):
    """Retention wrote `tombstoned` tombstones, deleted `deleted` events, `purged` old tombstones,
    `audit` audit rows and `quarantined` requests of the quarantine."""

    tombstoned: int
    deleted: int
    purged: int
    seconds: float
    audit: int = 0
    quarantined: int = 0


class SpaceReclaimed(Struct, frozen=True):
    """A SQLite ledger returned the pages of deleted rows to the file system."""

    pages: int


class RetentionPaused(Struct, frozen=True):
    """Retention is paused for `seconds`: at the start the newest time in the ledger was `behind`
    seconds behind the clock, so the clock may be wrong (S22)."""

    behind: float
    seconds: float


class PruneFailed(Struct, frozen=True):
    """A retention pass failed; it will be retried."""

    error: str


class Replayed(Struct, frozen=True):
    """An operator replayed `events` events; `changed` of them get a new run."""

    actor: str
    events: int
    changed: int


class Discarded(Struct, frozen=True):
    """An operator discarded `events` events; `changed` of them changed."""

    actor: str
    events: int
    changed: int


class LedgerRestored(Struct, frozen=True):
    """The ledger was restored from SQL text. It was accepted because of its schema, and marked."""

    path: str


class ClockStepped(Struct, frozen=True):
    """The machine's clock was set, by `seconds` (F25)."""

    seconds: float


class Measured(Struct, frozen=True):
    """The values of the gauges, measured about once a second."""

    stats: Stats
    buffered_events: int
    buffered_bytes: int


class RoutesServed(Struct, frozen=True):
    """This process serves these routes; a response may have any of these statuses."""

    routes: AbstractSet[str]
    statuses: AbstractSet[int]


class ResponseSent(Struct, frozen=True):
    """An HTTP response was sent; `route` is one of ours, or `other`."""

    route: str
    status: int


class RequestRefused(Struct, frozen=True):
    """A request got a 4xx response; `reason` repeats nothing that the peer sent."""

    status: int
    reason: str
    request_id: str
    peer: str | None


class SourceRefused(Struct, frozen=True):
    """A source refused a request, or an item of a delivery."""

    source: str
    reason: RefusalReason


class QuarantineLoss(StrEnum):
    """Why refused requests were dropped instead of kept."""

    FULL = "The share of the source, or the whole quarantine, is full."
    NO_MEMORY = "The buffer in memory is full: the store is slow or away."
    TOO_LARGE = "The request is larger than the share of its source and half of QUARANTINE_BYTES."
    NOT_WRITTEN = "The store failed, or the process ended before the request was written."


class Quarantined(Struct, frozen=True):
    """Requests of a source were put into the quarantine, or were dropped because of `loss`."""

    source: str
    kept: int
    dropped: int
    loss: QuarantineLoss = QuarantineLoss.FULL


class QuarantineMeasured(Struct, frozen=True):
    """How much of each source is in the quarantine."""

    usage: Mapping[str, QuarantineUsage]


class QuarantineReleased(Struct, frozen=True):
    """An operator released requests of the quarantine. `requests` were verified again, and
    `changed` of them were recorded and left the quarantine."""

    actor: str
    requests: int
    changed: int


class QuarantineDropped(Struct, frozen=True):
    """An operator dropped this many requests of the quarantine."""

    actor: str
    requests: int


Fact = (
    Started
    | Recorded
    | Refused
    | RecordFailed
    | Committed
    | Checkpointed
    | StoreFailed
    | StoreRecovered
    | Claimed
    | Settled
    | HandlerAbandoned
    | AbandonedEnded
    | WorkerCallFailed
    | QueueFailed
    | QueueRecovered
    | Unhandled
    | StopBegan
    | StopEnded
    | LeaseLost
    | ServiceStarted
    | ServiceFailed
    | ServiceRecovered
    | ObserverFailed
    | LoopBlocked
    | ClockSkewed
    | Pruned
    | SpaceReclaimed
    | RetentionPaused
    | PruneFailed
    | Replayed
    | Discarded
    | LedgerRestored
    | ClockStepped
    | Measured
    | RoutesServed
    | ResponseSent
    | RequestRefused
    | SourceRefused
    | Quarantined
    | QuarantineMeasured
    | QuarantineReleased
    | QuarantineDropped
)
Observer = Callable[[Fact], None]


OnObserverError = Callable[[Observer, Exception], None]


def ignore_error(observer: Observer, error: Exception) -> None:
    """Ignore an observer that failed, where nobody counts failures."""


def combine_observers(*observers: Observer, on_error: OnObserverError = ignore_error) -> Observer:
    """Return an observer that passes each fact to all of these. An observer that raises stops
    neither the other observers nor the caller, which may be in the middle of a commit or a claim
    (F56)."""

    def observe(fact: Fact) -> None:
        for observer in observers:
            try:
                observer(fact)
            except Exception as error:  # noqa: BLE001 - around an observer: counted and logged
                on_error(observer, error)

    return observe


def ignore_facts(fact: Fact) -> None:
    """Ignore the fact; the default where nothing observes."""
