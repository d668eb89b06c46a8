"""Facts: small values that say what happened. The core emits them; exporters subscribe.

Nothing here knows of logs or Prometheus. Facts about events come a batch at a time, so that telling
costs one call a commit, not one an event.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar

from msgspec import Struct

from ackbox.model import Claim, Envelope, EventId, Failure, Outcome, Receipt, Stats


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
    """These envelopes are durable; `seconds` is how long each had waited since it was accepted."""

    envelopes: Sequence[Envelope]
    receipts: Sequence[Receipt]
    seconds: Sequence[float]


REFUSAL_REASONS = frozenset(
    {"buffer_events", "buffer_bytes", "slow_body", "queue", "unavailable", "timeout"}
)


class Refused(Struct, frozen=True):
    """An event was not taken, for one of `REFUSAL_REASONS`."""

    reason: str


class RecordFailed(Struct, frozen=True):
    """A batch could not be stored; `retrying` says whether it is tried again."""

    events: int
    error: str
    retrying: bool


class Committed(Struct, frozen=True):
    """One transaction of the writer, whatever shared it."""

    operations: int
    seconds: float


class Checkpointed(Struct, frozen=True):
    """The write-ahead log was copied back into the database file."""

    seconds: float
    wal_pages: int
    copied_pages: int


class StoreFailed(Struct, frozen=True):
    """New events cannot be recorded; `told` is what senders may read of the reason."""

    reason: str
    told: str | None = None


class StoreRecovered(Struct, frozen=True):
    """New events can be recorded again."""


class Claimed(Struct, frozen=True):
    """A worker took these runs, each so many seconds after it could first have been run."""

    claims: Sequence[Claim]
    waited: Sequence[float]


class Settled(Struct, frozen=True):
    """The ends of these runs, after so many seconds each; `written` is what was stored for those
    whose claim still held. `handlers` names the handler that ran, None if none did."""

    claims: Sequence[Claim]
    seconds: Sequence[float]
    written: Mapping[EventId, Outcome]
    handlers: Sequence[str | None]


class HandlerAbandoned(Struct, frozen=True):
    """A handler is past its time-out and goes on; `stack` is where it was then. `hung` names every
    handler that was abandoned and has not ended, this one last."""

    claim: Claim
    handler: str
    stack: str | None
    hung: Sequence[str]


class AbandonedEnded(Struct, frozen=True):
    """A handler that was abandoned has ended; its run was settled long before. `failure` is what it
    raised; `left` is how many others still hang."""

    claim: Claim
    handler: str
    failure: Failure | None
    left: int


class WorkerCallFailed(Struct, frozen=True):
    """A claim, renewal or settlement did not reach the store; it is tried again."""

    doing: str
    error: str


class QueueFailed(Struct, frozen=True):
    """What carries new events to the workers is away; the database finds them, only later."""

    reason: str


class QueueRecovered(Struct, frozen=True):
    """It carries them again."""


RUNNING: ContextVar[Claim | None] = ContextVar("ackbox_running", default=None)
"""The claim whose handler runs in this context: log lines of the application name its event."""


class Unhandled(Struct, frozen=True):
    """No handler takes these events: each is completed as `ignored`, or parked (N4)."""

    claims: Sequence[Claim]


class StopBegan(Struct, frozen=True):
    """The process stops: so many runs of each handler get so many seconds to end (N7)."""

    running: Mapping[str, int]
    queued: int
    grace: float


class StopEnded(Struct, frozen=True):
    """The process has stopped, after so many seconds; so many events were released."""

    released: int
    seconds: float


class LeaseLost(Struct, frozen=True):
    """These claims are no longer ours: their runs are stopped, their results fenced off (S27)."""

    claims: Sequence[Claim]
    reason: str


class ServiceStarted(Struct, frozen=True):
    """A background loop of the process runs from now on."""

    name: str


class ServiceFailed(Struct, frozen=True):
    """A background loop raised, so many times in a row; it is restarted (F56)."""

    name: str
    failures: int
    error: str


class ServiceRecovered(Struct, frozen=True):
    """A background loop that had failed so many times in a row works again."""

    name: str
    failures: int


class ObserverFailed(Struct, frozen=True):
    """An observer raised on a fact; everything else went on (F56)."""

    observer: str
    error: str


class LoopBlocked(Struct, frozen=True):
    """The event loop did not answer: `where` names what it was doing."""

    where: str


class ClockSkewed(Struct, frozen=True):
    """The database's clock is so many seconds ahead of ours; 0: they agree again. It alone judges
    leases and due times; what a wrong clock still harms is what compares times of others with it
    (F25)."""

    seconds: float


class Pruned(Struct, frozen=True):
    """Retention: so many events got a tombstone, so many were deleted, so many tombstones went,
    and so many pages were given back to the file system; `audit` rows were deleted."""

    tombstoned: int
    deleted: int
    purged: int
    pages: int
    seconds: float
    audit: int = 0


class RetentionPaused(Struct, frozen=True):
    """At the start the ledger's newest time was so many seconds behind the clock: the clock may be
    wrong, so nothing is deleted for a while (S22)."""

    behind: float
    seconds: float


class PruneFailed(Struct, frozen=True):
    """Retention could not do its work; it is tried again."""

    error: str


class Replayed(Struct, frozen=True):
    """An operator asked to replay so many events; `moved` of them got a new run."""

    actor: str
    events: int
    moved: int


class Discarded(Struct, frozen=True):
    """An operator asked to discard so many events; `moved` of them were given up."""

    actor: str
    events: int
    moved: int


class LedgerRestored(Struct, frozen=True):
    """The ledger was restored from SQL text: it was accepted by its schema alone, and marked."""

    path: str


class ClockStepped(Struct, frozen=True):
    """The machine's clock was set, by so many seconds (F25)."""

    seconds: float


class Measured(Struct, frozen=True):
    """A look at the gauges, about once a second."""

    stats: Stats
    buffered_events: int
    buffered_bytes: int


class RoutesServed(Struct, frozen=True):
    """This process serves these routes; each may be answered with any of these statuses."""

    routes: AbstractSet[str]
    statuses: AbstractSet[int]


class ResponseSent(Struct, frozen=True):
    """An HTTP request was answered; `route` is one of ours, or `other`."""

    route: str
    status: int


class RequestRefused(Struct, frozen=True):
    """A request got a 4xx response; `reason` repeats nothing that the peer sent."""

    status: int
    reason: str
    request_id: str
    peer: str | None


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
)
Observer = Callable[[Fact], None]


OnObserverError = Callable[[Observer, Exception], None]


def ignore_error(observer: Observer, error: Exception) -> None:
    """For where nobody counts failed observers."""


def to_all(*observers: Observer, on_error: OnObserverError = ignore_error) -> Observer:
    """Pass each fact to every observer. One that raises stops neither the others nor the caller: a
    fact is observed in the middle of ingest, claims and settlements (F56)."""

    def observe(fact: Fact) -> None:
        for observer in observers:
            try:
                observer(fact)
            except Exception as error:  # noqa: BLE001 - around an observer: counted and logged
                on_error(observer, error)

    return observe


def to_nobody(fact: Fact) -> None:
    """For where nobody listens."""
