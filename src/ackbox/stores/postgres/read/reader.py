"""`Reader` on PostgreSQL: short statements on its own connections, no long transactions (L13)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict, replace

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
    Status,
    is_event_id,
)
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read.event_detail import read_audit, read_detail
from ackbox.stores.postgres.read.pages import read_page, read_source_page, records
from ackbox.stores.postgres.read.quarantine import PostgresQuarantineReader
from ackbox.stores.postgres.read.user_query import run_query, to_dicts
from ackbox.stores.postgres.user_sql import check_user_query
from ackbox.stores.user_tables import find_pending

_UUID_DIGITS = 32
_HEX = frozenset("0123456789abcdef")
WAITING_LIMIT = 1_000_000
_CONNECTIONS = 3
_SECONDS = 5.0


class PostgresReader:
    """A reader whose `waiting` counts up to `waiting_limit`: no caller needs a higher count. A
    user's query is stopped after `seconds`."""

    def __init__(
        self, address: Address, *, waiting_limit: int = WAITING_LIMIT, seconds: float = _SECONDS
    ) -> None:
        address = replace(address, planned_by_value=True)
        self._database = Database(address, size=_CONNECTIONS, seconds=_SECONDS)
        self._waiting_limit = waiting_limit
        self.quarantine = PostgresQuarantineReader(self._database)
        self._seconds = seconds

    async def event(self, name: EventId | EventKey) -> EventRecord | None:
        if not _may_name_an_event(name):
            return None
        async with self._database.reading() as session:
            if isinstance(name, EventKey):
                ids = [row["id"] for row in await session.fetch("id_by_key", **asdict(name))]
            else:
                ids = [name]
            events = await records(session, ids)
        return events[0] if events else None

    async def ids_starting(self, prefix: str, *, limit: int) -> list[EventId]:
        digits = prefix.replace("-", "")
        if not _may_begin_an_id(prefix):
            return []
        first, last = digits.ljust(_UUID_DIGITS, "0"), digits.ljust(_UUID_DIGITS, "f")
        async with self._database.reading() as session:
            rows = await session.fetch("ids_by_prefix", first=first, last=last, limit=limit)
        return [EventId(row["id"]) for row in rows]

    async def content(self, event_id: EventId) -> Content | None:
        if not is_event_id(event_id):
            return None
        async with self._database.reading() as session:
            row = await session.fetch_one("content", id=event_id)
        return None if row is None else Content(**row)

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        async with self._database.reading() as session:
            return await read_page(session, where, order, limit, cursor)

    async def events_of_source(
        self, where: EventFilter, *, limit: int, cursor: SourceCursor | None = None
    ) -> SourcePage:
        async with self._database.reading() as session:
            return await read_source_page(session, where, limit, cursor)

    async def detail(self, event_id: EventId) -> EventDetail | None:
        if not is_event_id(event_id):
            return None
        async with self._database.reading() as session:
            return await read_detail(session, event_id)

    async def stats(self, now: datetime) -> Stats:
        """Return the age of the ledger by the server's clock, and ignore `now`."""
        async with self._database.reading() as session:
            status_counts = dict(map(tuple, await session.fetch("status_counts")))
            oldest = await session.fetch_one("oldest_pending")
            newest, server_now = await session.fetch_one("newest_time")
        counts = {status: status_counts.get(status, 0) for status in Status}
        age = None if newest is None else server_now - newest
        return Stats(counts, None if oldest is None else oldest[0], age)

    async def waiting(self, now: datetime) -> int:
        """Return the count by the server's clock, and ignore `now`."""
        async with self._database.reading() as session:
            row = await session.fetch_one("waiting", limit=self._waiting_limit)
        return int(row[0])

    async def audit(
        self, *, event_id: EventId | None = None, limit: int, cursor: int | None = None
    ) -> AuditPage:
        if event_id is not None and not is_event_id(event_id):
            return AuditPage([], None)
        async with self._database.reading() as session:
            return await read_audit(session, event_id, limit, cursor)

    async def parked_type(self, after: tuple[str, str]) -> tuple[str, str] | None:
        async with self._database.reading() as session:
            row = await session.fetch_one("parked_type", source=after[0], event_type=after[1])
        return None if row is None else (row["source"], row["event_type"])

    async def pending_migrations(self, declared: Sequence[InboxMigration]) -> list[str]:
        async with self._database.reading() as session:
            applied = dict(map(tuple, await session.fetch("applied_inbox_migrations")))
        return [migration.name for migration in find_pending(applied, declared)]

    async def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        check_user_query(sql)
        async with self._database.users_transaction() as session:
            rows = await run_query(session, sql, params, self._seconds)
        return await to_dicts(rows)

    async def close(self) -> None:
        await self._database.close()


def _may_name_an_event(name: EventId | EventKey) -> bool:
    if isinstance(name, EventKey):
        return "\0" not in name.source + name.idempotency_key  # no text in PostgreSQL contains NUL
    return is_event_id(name)


def _may_begin_an_id(prefix: str) -> bool:
    example = "00000000-0000-0000-0000-000000000000"
    if not 0 < len(prefix) <= len(example):
        return False
    pairs = zip(prefix, example, strict=False)
    return all(given == "-" if shown == "-" else given in _HEX for given, shown in pairs)
