"""What the core needs of the outside, sliced by caller. Each docstring is the specification that
`tests/contract` holds every backend to.

One method is one transaction. Sets, not singles. No SQL, cursor or connection crosses a port.
"""

from collections.abc import AsyncIterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from ackbox.model import (
    AuditPage,
    BackupProgress,
    Caps,
    Claim,
    Content,
    Cursor,
    DiscardKind,
    Envelope,
    EventDetail,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Outcome,
    Page,
    PruneResult,
    Receipt,
    ReplayKind,
    RetentionPolicy,
    Settlement,
    SourceCursor,
    SourcePage,
    Stats,
    Suspect,
    TombstonePass,
    WorkerId,
)


class Ledger(Protocol):
    """The ingest side."""

    async def record(
        self, envelopes: Sequence[Envelope], *, cursor: Cursor | None = None
    ) -> list[Receipt]:
        """Make the envelopes durable and return one receipt each, in their order.

        - Returned means committed and synced: a power cut in the next instant keeps all of them.
        - The insert itself decides what is new: one `(source, idempotency_key)` is one row,
          whatever is concurrent, also inside one call.
        - A duplicate adds one to the ingest count and refreshes last-seen; with other bytes it is a
          conflict, counted too, and the first payload stays. Nothing else changes (L6).
        - Events and cursor commit together or not at all.
        - Raises `Unavailable` when nothing was kept and a retry is right, `OutcomeUnknown` when
          COMMIT itself failed, `InvalidEvent` when these envelopes can never be stored.
        - Cancelling the caller changes nothing about the transaction: it commits or rolls back
          whole.
        """
        ...

    async def cursor(self, source: str) -> str | None:
        """The last cursor committed for this source."""
        ...

    async def prove_writable(self) -> None:
        """A tiny write, committed and synced; raises what `record` would."""
        ...

    @property
    def unavailable_reason(self) -> str | None:
        """Why new events cannot be recorded now, in one sentence; None when all is well.

        Read at any time, without waiting.
        """
        ...


class EventQueue(Protocol):
    """The worker side. The database is the queue; in memory is only what is being worked on."""

    async def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        caps: Caps,
        ids: Sequence[EventId] | None = None,
    ) -> list[Claim]:
        """Take at most `limit` runs of what is due, or whose lease ran out, oldest due first.

        - Each gets `run` + 1 and one attempt spent. Taking over an ended lease adds one to
          `unsettled` and gives the attempt of the lost run back, unless that run was a suspect's.
          No event is validly claimed by two at once.
        - A suspect (`unsettled` would be `SUSPECT` or more) is not among them.
        - While several sources have something due, none gets more than `caps.share` less what it
          holds; while one is alone, no more than `caps.alone`. In a lane only the oldest unsettled
          event can be claimed: one that waits for a retry, or is parked, holds its lane.
        - With `ids`, the same of these alone, whatever their source.
        - The cost does not depend on rows that are not eligible.
        """
        ...

    async def suspect(self) -> Suspect | None:
        """Return the suspect that has been due longest, without claiming it."""
        ...

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        """Claim this suspect, as `claim` does; None if it is not due any more, or another worker
        was faster."""
        ...

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        """Extend the leases of those claims that still hold; returns these. May be called on an
        event loop of its own."""
        ...

    async def end_renewals(self) -> None:
        """Close what `renew` keeps open for the running event loop, which ends."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        """Write each outcome where `(id, run)` still match; returns what was written there.

        Every outcome but `Release` sets `unsettled` to 0; what is released stays a suspect if it
        was one. State and effects commit together. An outcome whose effects fail is settled as its
        `otherwise`. When it raises, some may have been written: settling all of them again is
        right, changes nothing that was written, and returns that too.
        """
        ...

    async def wait(self, timeout: timedelta) -> None:
        """Until something may be claimable, or the time-out: a hint, never a guarantee."""
        ...


class Relay(EventQueue, Protocol):
    """An `EventQueue` before that of the database, which carries new events to the workers.

    It may lose what it carries, repeat it, or be away: the database's own queue finds them all.
    """

    def publish(self, events: Mapping[EventId, str]) -> None:
        """These are durable and new; each with its source. Never waits, never fails."""
        ...

    async def close(self) -> None: ...


class Reader(Protocol):
    """The reading side: http, cli, console. Never blocks the writer, never reads for long."""

    async def event(self, event_id: EventId) -> EventRecord | None: ...

    async def event_by_key(self, source: str, idempotency_key: str) -> EventRecord | None: ...

    async def ids_starting(self, prefix: str, *, limit: int) -> list[EventId]:
        """The first few ids that begin with these characters: people type no whole UUID."""
        ...

    async def payload(self, event_id: EventId) -> bytes | None:
        """The exact bytes."""
        ...

    async def content(self, event_id: EventId) -> Content | None:
        """The exact bytes and what came with them, for an export."""
        ...

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        """A page of at most `limit` events by arrival, on from `cursor` (exclusive)."""
        ...

    async def events_of_source(
        self, where: EventFilter, *, limit: int, cursor: SourceCursor | None = None
    ) -> SourcePage:
        """The same in the order of `where.source`, which must be given (L7): by sequence, then
        source time, then arrival; those that lack one come behind those that have it."""
        ...

    async def detail(self, event_id: EventId) -> EventDetail | None:
        """All there is to say of one event, and what it waits for."""
        ...

    async def stats(self) -> Stats:
        """Counts by status, kept and not scanned, and the age of the oldest pending event."""
        ...

    async def newest_age(self, now: datetime) -> timedelta | None:
        """How long ago the ledger last changed, judged by the clock that retention goes by; None
        if it holds nothing."""
        ...

    async def waiting(self, now: datetime) -> int:
        """Return how many events are pending and due (W7); parked events are not."""
        ...

    async def audit(
        self, *, event_id: EventId | None = None, limit: int, cursor: int | None = None
    ) -> AuditPage:
        """What operators did, newest first; to one event, if so asked."""
        ...

    async def parked_type(self, after: tuple[str, str]) -> tuple[str, str] | None:
        """The next `(source, event_type)` of which events are held for want of a handler."""
        ...

    async def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        """One read-only statement of a user's, as rows of named columns."""
        ...

    async def close(self) -> None: ...


class Operations(Protocol):
    """The operating side: runtime, cli."""

    def check_free_space(self) -> None:
        """Called about once a second: notices a disk that fills up, and its end."""
        ...

    def advertise(self, url: str, *, workers: int | None = None) -> None:
        """Tell other processes of this machine where the holder of the ledger answers."""
        ...

    def backup(self, target: Path) -> AsyncIterable[BackupProgress]:
        """Copy the ledger, as of one moment, into a new file while events keep coming.

        Each item says how far it is; the target appears, whole and synced, after the last.
        """
        ...

    async def recover(self) -> None:
        """Make claimable what a dead holder of this ledger left running (W4)."""
        ...

    async def apply_schema(self, ddl: Sequence[str]) -> None:
        """Run the users' own DDL."""
        ...

    async def replay(
        self,
        ids: Sequence[EventId],
        *,
        actor: str,
        peer: str | None = None,
        completed: bool = False,
    ) -> Mapping[EventId, ReplayKind]:
        """Give these events a new run; says what was done to each that exists (L11, F31).

        - Finished: pending again, with no attempt spent. `run` stays: what an older run still has
          to say is fenced off, and a tombstone is taken away.
        - Completed: left as it is, unless `completed` asks for such events too (N5).
        - Waiting for a retry: due now. Held: put back. Pending otherwise, or processing: as it was.
        - In a lane it comes behind the event that runs, and before those that arrived later.
        - Each leaves a row in the audit, in the same commit: who the caller says it is, and the
          address it called from.
        """
        ...

    async def discard(
        self, ids: Sequence[EventId], *, actor: str, peer: str | None = None
    ) -> Mapping[EventId, DiscardKind]:
        """Give these events up on purpose; return what was done to each that exists (N14).

        - Pending or failed: completed with outcome `discarded`, now. Attempts, run and errors
          stay. A tombstone is removed: retention starts anew. A lane goes on behind the event.
        - Processing or completed: left as it is.
        - Each leaves a row in the audit, in the same commit.
        """
        ...

    async def unpark(self, source: str, event_type: str) -> int:
        """Make some held events of this type claimable; returns how many, 0 at the end."""
        ...

    async def add_tombstones(self, policy: RetentionPolicy, *, after: int) -> TombstonePass:
        """Leave tombstones for old completed events among the next rows after `after`.

        Bounded in rows and time, as the next five are. What is pending or processing is never
        touched, whatever its age. From then on `record` knows the key by row or tombstone.
        """
        ...

    async def add_dead_letter_tombstones(
        self, policy: RetentionPolicy, *, after: int
    ) -> TombstonePass:
        """Do the same for old dead letters. The cost depends on dead letters alone: they may be
        kept for less time than completed events, or for more (N14)."""
        ...

    async def prune(self, policy: RetentionPolicy) -> PruneResult:
        """Delete some of the events whose tombstones are old enough, if nothing touched them."""
        ...

    async def purge_tombstones(self, policy: RetentionPolicy) -> int:
        """Delete some of the tombstones that have been known long enough; returns how many."""
        ...

    async def prune_audit(self, policy: RetentionPolicy) -> int:
        """Delete some of the audit rows that are older than `keep`; returns how many."""
        ...

    async def reclaim_space(self) -> int:
        """Return some free space to the file system; returns how many pages, 0 at the end."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then let go of the ledger."""
        ...


class Store(Ledger, Operations, Protocol):
    """What holds the ledger of one process, seen whole."""

    @property
    def queue(self) -> EventQueue: ...
