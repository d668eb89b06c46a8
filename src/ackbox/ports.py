"""What the core needs of the outside, sliced by caller. Each docstring is the specification that
`tests/contract` holds every backend to.

One method is one transaction. Sets, not singles. No SQL, cursor or connection crosses a port.
"""

from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Protocol

from ackbox.model import (
    BackupProgress,
    Checkpoint,
    Envelope,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Page,
    Receipt,
    Stats,
)


class Ledger(Protocol):
    """The ingest side."""

    async def record(
        self, envelopes: Sequence[Envelope], *, checkpoint: Checkpoint | None = None
    ) -> list[Receipt]:
        """Make the envelopes durable and return one receipt each, in their order.

        - Returned means committed and synced: a power cut in the next instant keeps all of them.
        - The insert itself decides what is new: one `(source, idempotency_key)` is one row,
          whatever is concurrent, also inside one call.
        - A duplicate adds one to the ingest count and refreshes last-seen; with other bytes it is a
          conflict, counted too, and the first payload stays. Nothing else changes (L6).
        - Events and checkpoint commit together or not at all.
        - Raises `Unavailable` when nothing was kept and a retry is right, `OutcomeUnknown` when
          COMMIT itself failed, `InvalidEvent` when these envelopes can never be stored.
        - Cancelling the caller changes nothing about the transaction: it commits or rolls back
          whole.
        """
        ...

    async def checkpoint(self, source: str) -> str | None:
        """The last cursor committed for this source."""
        ...

    async def prove_writable(self) -> None:
        """A tiny write, committed and synced; raises what `record` would."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why new events cannot be recorded now, in one sentence; None when all is well.

        Read at any time, without waiting.
        """
        ...


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

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        """A page of at most `limit` events by arrival, on from `cursor` (exclusive)."""
        ...

    async def stats(self) -> Stats:
        """Counts by status, kept and not scanned, and the age of the oldest pending event."""
        ...

    async def close(self) -> None: ...


class Upkeep(Protocol):
    """The operating side: runtime, cli."""

    def check_room(self) -> None:
        """Called about once a second: notices a disk that fills up, and its end."""
        ...

    def announce(self, url: str) -> None:
        """Tell other processes of this machine where the holder of the ledger answers."""
        ...

    def backup(self, target: Path) -> AsyncIterable[BackupProgress]:
        """Copy the ledger, as of one moment, into a new file while events keep coming.

        Each item says how far it is; the target appears, whole and synced, after the last.
        """
        ...

    async def close(self) -> None:
        """Finish what is queued, then let go of the ledger."""
        ...


class Store(Ledger, Upkeep, Protocol):
    """What holds the ledger of one process, seen whole."""
