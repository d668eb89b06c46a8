"""The port of everything that only reads."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from ackbox.model import (
    AuditPage,
    Content,
    EventDetail,
    EventFilter,
    EventId,
    EventKey,
    EventRecord,
    InboxMigration,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    Stats,
)
from ackbox.ports.quarantine import QuarantineReader


class Reader(Protocol):
    """The port of the HTTP API and the command line: it only reads.

    A read never blocks the writer, and its duration is bounded.
    """

    @property
    def quarantine(self) -> QuarantineReader: ...

    async def event(self, name: EventId | EventKey) -> EventRecord | None: ...

    async def ids_starting(self, prefix: str, *, limit: int) -> list[EventId]:
        """Return the first `limit` ids that start with this prefix.

        People type the first characters of a UUID, not the whole.
        """
        ...

    async def content(self, event_id: EventId) -> Content | None:
        """Return the exact bytes of the payload, and the stored headers."""
        ...

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        """Return a page of at most `limit` events in order of arrival, after `cursor`."""
        ...

    async def events_of_source(
        self, where: EventFilter, *, limit: int, cursor: SourceCursor | None = None
    ) -> SourcePage:
        """Return a page of one source's events in the order of that source (L7).

        `where.source` is required. Events are ordered by source sequence, then by source time, then
        by arrival. An event that lacks one of these values comes after those that have it.
        """
        ...

    async def detail(self, event_id: EventId) -> EventDetail | None:
        """Return an event with its history and the reason why it waits."""
        ...

    async def stats(self, now: datetime) -> Stats:
        """Return the stored counts by status, the age of the oldest pending event, and how long ago
        the ledger last changed.

        The counts are maintained by the writers, so the call does not scan events.
        """
        ...

    async def waiting(self, now: datetime) -> int:
        """Return how many events are pending and due (W7). Parked events are not counted.

        The cost may grow with the events that are due later, or with the result.
        """
        ...

    async def audit(
        self, *, event_id: EventId | None = None, limit: int, cursor: int | None = None
    ) -> AuditPage:
        """Return a page of the operators' actions, newest first.

        If `event_id` is given, return only the actions on this event.
        """
        ...

    async def parked_type(self, after: tuple[str, str]) -> tuple[str, str] | None:
        """Return the next `(source, event_type)` after `after` that has parked events, or None."""
        ...

    async def pending_migrations(self, declared: Sequence[InboxMigration]) -> list[str]:
        """Return the names of those migrations of the user's tables that are not applied yet.

        Raises `StartupError` if the SQL of an applied migration has changed.
        """
        ...

    async def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        """Run one read-only statement of the user; return each row as a dict by column name."""
        ...
