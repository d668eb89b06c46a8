"""The protocols that the core needs from a store or a queue, one for each kind of caller.

A docstring here is the specification of its method, and `tests/contract` checks every backend
against it. A method that writes takes a set of items where a caller may have several, and is one
transaction unless its docstring says otherwise. No SQL, database cursor or connection crosses a
protocol. Ids such as W7, F28 or N14, here and elsewhere, are defined in
`tests/docs/requirement_ids.py`.
"""

from collections.abc import AsyncIterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

from ackbox.model import (
    Accepted,
    BackupProgress,
    Caps,
    Claim,
    DiscardKind,
    EventId,
    Handshake,
    InboundRequest,
    InboxMigration,
    Moved,
    Outcome,
    PruneResult,
    PurgeResult,
    Receipt,
    Refusal,
    ReplayKind,
    RetentionPolicy,
    Settlement,
    Status,
    Submission,
    Suspect,
    TombstonePass,
    WorkerId,
)
from ackbox.ports.quarantine import Quarantine as Quarantine
from ackbox.ports.quarantine import QuarantineReader as QuarantineReader
from ackbox.ports.reader import Reader as Reader


class Webhook(Protocol):
    """A source that senders deliver to over HTTP: it turns one request into events."""

    @property
    def name(self) -> str:
        """The name of the source, which is the source of its events and a metric label."""
        ...

    def receive(self, request: InboundRequest) -> Accepted | Refusal | Handshake:
        """Verify and read a request, and return the events to record, a refusal or a handshake.

        - The call has no effect and does no I/O. It may be made again later with the same request,
          after a secret was corrected: times are judged against `request.received_at`.
        - It never raises because of what a sender put into the request.
        - Events are returned only if the request was verified as the source declares.
        """
        ...


class Ledger(Protocol):
    """The port of ingest: it makes events and cursors durable."""

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        """Make the submissions durable and return one receipt for each envelope, in the same order.

        - When the call returns, the transaction is committed and synced: all its events survive a
          power cut in the next instant.
        - The insert itself decides which events are new. One `(source, idempotency_key)` is one
          row, whatever runs concurrently, and also when one call contains the key twice.
        - A delivery (with `outcome`) is completed, and never claimed. Its new items belong to the
          delivery that the ledger has under its key.
        - An envelope with a `fingerprint` and a new key is a duplicate of the event with the same
          source and payload that had a fingerprint, for 24 hours, whatever runs concurrently (F47).
        - A duplicate adds one to the row's ingest count and refreshes its last-seen time. If the
          payload differs, the duplicate is a conflict: it is counted as one, and the first payload
          stays. Nothing else changes (L6). PostgreSQL counts duplicates after the commit that
          stores the new events.
        - All events and cursors of a call commit together or not at all. If a call contains several
          cursors of one source, the last one is saved.
        - Raises `InvalidEvent` if one of the submissions can never be stored: nothing of this call
          is stored then, and the caller finds the bad submission by recording each one alone.
        - Raises `Unavailable` if nothing was stored and the caller should retry.
        - Raises `OutcomeUnknown` if the events may be stored or not: on SQLite, if COMMIT itself
          failed. The caller should not retry. Only after `ConnectionLost`, which PostgreSQL raises,
          it should: a retry with the same ids returns the same receipts.
        - Cancelling the caller does not affect the transaction, which commits or rolls back as a
          whole.
        """
        ...

    async def cursor(self, source: str) -> str | None:
        """Return the last cursor that was committed for this source, or None.

        Nothing calls this method yet: it is for future sources, which continue from there.
        """
        ...

    async def prove_writable(self) -> None:
        """Commit and sync a tiny write; raise the same errors as `record`."""
        ...

    @property
    def unavailable_reason(self) -> str | None:
        """Why new events cannot be recorded now, in one sentence; None if they can.

        Reading this property never blocks.
        """
        ...


class EventQueue(Protocol):
    """The port of the worker: it claims due events and settles their runs.

    The database is the queue. The worker keeps only its own claims in memory.
    """

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        """Claim at most `limit` events that are due or whose lease has expired.

        - SQLite claims the events that have been due longest. PostgreSQL has two kinds of claims. A
          full scan begins with the event that has been due longest. A partial scan begins after
          the last event that was claimed of each source. Usually claims are full scans, and once a
          second one claim is a partial scan instead. While there is a backlog, or while full scans
          are slow, claims are partial scans, and once a second one claim is a full scan instead.
        - A partial scan may pass over events that became due earlier, and may return fewer events
          than are due, but it returns at least one if any is due. Slow full scans are made less
          often, so that they use at most about a tenth of the elapsed time.
        - Each claim adds one to `run` and spends one attempt. Taking over an expired lease adds one
          to `unsettled` and refunds the attempt of the lost run, unless that run was a suspect's.
          At any time, an event has at most one valid claim.
        - Suspects are left out: events whose `unsettled` would become `SUSPECT` or more.
        - While several sources have due events, each source gets at most `caps.share` minus the
          claims it already holds. While only one source has due events, it may hold at most
          `caps.alone` claims, or any number if that is None.
        - In a lane, only the oldest unsettled event can be claimed. While that event is parked or
          waits for a retry, it blocks its lane.
        - The cost does not depend on rows that are not eligible.
        """
        ...

    async def claim_these(
        self, worker: WorkerId, ids: Sequence[EventId], *, limit: int, lease: timedelta
    ) -> list[Claim]:
        """Claim at most `limit` of these events, as `claim` does but without limits of sources.

        Events that `claim` could not claim now are left out.
        """
        ...

    async def suspect(self) -> Suspect | None:
        """Return the due suspect with the fewest unsettled runs, without claiming it.

        Among equals, the suspect that has been due longest comes first.
        """
        ...

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        """Claim this suspect, as `claim` does for other events.

        Return None if the event is no longer due or if another worker was faster.
        """
        ...

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        """Extend the leases of those claims that are still valid; return the ids of these events.

        The caller may run on an event loop other than that of the remaining methods. What the call
        opened for that loop is closed when `asyncio.run` or `asyncio.Runner` ends the loop.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        """Write each outcome whose claim is still valid; return the outcomes that were written.

        - A claim is valid if `(ledger_id, run)` still match the row. Outcomes of other claims are
          not applied.
        - The state of an event and the effects of its run commit together. Several settlements may
          take several transactions. If the effects of a run fail, its event is settled with the
          outcome's `on_effect_failure` instead.
        - Every outcome except `Release` sets `unsettled` to 0. A suspect that is released stays a
          suspect.
        - If the call raises, some outcomes may have been written. The caller should settle all of
          them again: that changes nothing that was written, and returns those outcomes too.
        """
        ...

    async def wait(self, timeout: timedelta) -> None:
        """Wait until an event may be claimable, or until the time-out.

        The return is a hint: there may be nothing to claim.
        """
        ...


class Submissions(Protocol):
    """The port of the mover: it records the events that handlers sent with `tx.send` and, on
    PostgreSQL, applications with `enqueue`. These events wait in the table `submissions`."""

    async def move(self) -> Moved:
        """Record some submissions as `Ledger.record` does and delete them, in one transaction;
        return the empty `Moved` at the end.

        - Only submissions whose transaction has committed are moved. Each one is recorded once,
          whatever happens during the call and however many instances call it at the same time.
        - Submissions of a lane are recorded in the order in which they were written.
        - Raises `Unavailable` or `OutcomeUnknown` as `record` does; the caller should call again.
        """
        ...

    async def wait(self, timeout: timedelta) -> None:
        """Wait until an event was sent through this process with `tx.send`, or until the
        time-out."""
        ...


class Relay(Protocol):
    """A channel that carries new events from the instance that recorded them to an idle worker.

    A relay may lose events, deliver them twice or be unreachable. The database's own queue finds
    every event that the relay did not deliver. No method raises because of an outage.
    """

    async def add(self, events: Mapping[EventId, str]) -> bool:
        """Hand over new, durable events, each given with its source; return whether that worked."""
        ...

    async def read(self, count: int, *, block: float = 0.0) -> list[tuple[EventId, str]]:
        """Return at most `count` events that no other instance has read, each with its source.

        Wait for the first one at most about `block` seconds, or longer during an outage. A call
        that does not block returns nothing during an outage.
        """
        ...

    async def close(self) -> None: ...


class RetentionStore(Protocol):
    """The port of retention: it deletes old events in small steps.

    Each call is bounded in rows and time. No call touches a pending or processing event, whatever
    its age. The store returns the space of deleted rows by itself.
    """

    async def add_tombstones(
        self, policy: RetentionPolicy, status: Status, *, after: int
    ) -> TombstonePass:
        """Add tombstones for old events in this status among the next rows after `after`.

        The status is completed or failed: dead letters may be kept for a shorter or a longer time
        than completed events (N14). Once an event has a tombstone, `record` knows its key by the
        row or by the tombstone. For dead letters, the cost depends on their number only.
        """
        ...

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        """Delete some events whose tombstones are old enough, unless the event changed since."""
        ...

    async def purge(self, policy: RetentionPolicy) -> PurgeResult:
        """Delete some tombstones that were kept for long enough. If there are none, delete some
        audit rows that are older than `policy.keep`.

        The caller repeats the call until both counts are 0: then nothing is left to delete. On
        PostgreSQL, this last call also deletes the rows of idle lanes.
        """
        ...

    async def prune_fingerprints(self) -> int:
        """Delete some fingerprints that have expired; return how many, 0 at the end."""
        ...

    async def prune_quarantine(self, policy: RetentionPolicy) -> int:
        """Delete some requests kept for longer than `policy.keep_quarantined`; return how many, 0
        at the end."""
        ...


class Operations(Protocol):
    """The port of operators: it changes users' tables, replays, discards and unparks."""

    async def apply_tables(
        self, schemas: Sequence[str], migrations: Sequence[InboxMigration] = ()
    ) -> list[str]:
        """Run the user's DDL statements, then apply the pending migrations of the user's tables;
        return the names of these migrations (N12).

        - All DDL statements commit together or not at all.
        - Migrations run in the order of their declaration. Each one commits together with its
          record, or not at all. Each one is applied once, however many instances start at the same
          time.
        - Raises `StartupError` if the SQL of an applied migration has changed: nothing is applied
          then. Raises the same error if a migration fails or is not allowed: this migration and all
          later migrations are not applied then.
        - Applied migrations that are no longer declared are ignored.
        """
        ...

    async def replay(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        """Run these events again on an operator's request; return what was done to each existing
        event (L11, F31).

        - A failed event becomes pending with no attempt spent. Its `run` stays, so the result of an
          older run is still fenced off. Its tombstone, if any, is removed.
        - A completed event is left as it is. With `completed=True`, it is replayed like a failed
          event (N5). A delivery is always left as it is: its items are events of their own.
        - An event that waits for a retry becomes due now, and a parked event is unparked. Both keep
          their attempts. Any other pending event and any processing event is left as it is.
        - In a lane, a replayed event runs after the event that is running and before the events
          that arrived later.
        - Each existing event among `ids` gets an audit row in the same commit, even if the event
          was left as it is. The row names the actor, as given by the caller, and the caller's
          address (`peer`).
        """
        ...

    async def discard(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, DiscardKind]:
        """Give these events up on purpose; return what was done to each existing event (N14).

        - A pending or failed event is completed now, with outcome `discarded`. Its attempts, run
          and errors stay. Its tombstone, if any, is removed, so retention starts anew. The next
          event of its lane becomes claimable.
        - A processing or completed event is left as it is.
        - Each existing event among `ids` gets an audit row in the same commit, even if the event
          was left as it is.
        """
        ...

    async def unpark(self, source: str, event_type: str) -> int:
        """Make some parked events of this type claimable; return how many, 0 if none is left."""
        ...


class Store(Ledger, RetentionStore, Operations, Protocol):
    """The ledger of one process with all its ports. `close` also closes the reader."""

    @property
    def queue(self) -> EventQueue: ...

    @property
    def submissions(self) -> Submissions: ...

    @property
    def quarantine(self) -> Quarantine: ...

    @property
    def reader(self) -> Reader: ...

    async def close(self) -> None:
        """Finish the queued operations, then close the ledger and release its lock."""
        ...


@runtime_checkable
class CopyableStore(Store, Protocol):
    """A ledger in one file, which the process that holds it can copy."""

    def backup(self, target: Path) -> AsyncIterable[BackupProgress]:
        """Copy the ledger, as of one moment, into a new file while ingest continues.

        Each item reports the progress. After the last item, the target exists, complete and synced.
        """
        ...
