"""The reading side: short reads on read-only connections, one statement at a time (L13)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec.structs import asdict

from ackbox.errors import InvalidEvent, Stopped
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
from ackbox.stores.sqlite.connections import translate, with_deadline
from ackbox.stores.sqlite.read.event_detail import read_audit, read_detail
from ackbox.stores.sqlite.read.pages import read_page, read_source_page, records
from ackbox.stores.sqlite.read.quarantine import SqliteQuarantineReader
from ackbox.stores.sqlite.read.reader_connections import ReaderConnections
from ackbox.stores.sqlite.read.stats import count_waiting, read_stats
from ackbox.stores.sqlite.read.user_query import run_query
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.user_tables import find_pending

T = TypeVar("T")

_THREADS = 2
_SECONDS = 5.0


class SqliteReader:
    """Implements `Reader`. A read is stopped after `seconds`."""

    def __init__(self, path: Path, *, vfs: str | None = None, seconds: float = _SECONDS) -> None:
        self.connections = ReaderConnections(path, _THREADS, vfs=vfs)
        self._path = path
        self._seconds = seconds
        self._closed = False
        self.quarantine = SqliteQuarantineReader(self._read)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ackbox-reader")

    async def event(self, name: EventId | EventKey) -> EventRecord | None:
        def read(sql: Statements) -> EventRecord | None:
            if isinstance(name, EventKey):
                ids = [row["id"] for row in sql.rows("id_by_key", **asdict(name))]
            else:
                ids = [name]
            events = records(sql, ids)
            return events[0] if events else None

        return await self._read(read)

    async def ids_starting(self, prefix: str, *, limit: int) -> list[EventId]:
        parameters = {"prefix": prefix, "limit": limit}
        rows = await self._read(lambda sql: sql.rows("ids_by_prefix", **parameters))
        return [EventId(row["id"]) for row in rows]

    async def content(self, event_id: EventId) -> Content | None:
        rows = await self._read(lambda sql: sql.rows("content", id=event_id))
        return Content(**rows[0]) if rows else None

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        return await self._read(lambda sql: read_page(sql, where, order, limit, cursor))

    async def events_of_source(
        self, where: EventFilter, *, limit: int, cursor: SourceCursor | None = None
    ) -> SourcePage:
        return await self._read(lambda sql: read_source_page(sql, where, limit, cursor))

    async def detail(self, event_id: EventId) -> EventDetail | None:
        return await self._read(lambda sql: read_detail(sql, event_id))

    async def stats(self, now: datetime) -> Stats:
        return await self._read(lambda sql: read_stats(sql, now))

    async def waiting(self, now: datetime) -> int:
        return await self._read(lambda sql: count_waiting(sql, now))

    async def audit(
        self, *, event_id: EventId | None = None, limit: int, cursor: int | None = None
    ) -> AuditPage:
        return await self._read(lambda sql: read_audit(sql, event_id, limit, cursor))

    async def parked_type(self, after: tuple[str, str]) -> tuple[str, str] | None:
        parameters = {"source": after[0], "event_type": after[1]}
        rows = await self._read(lambda sql: sql.rows("parked_type", **parameters))
        return (rows[0]["source"], rows[0]["event_type"]) if rows else None

    async def pending_migrations(self, declared: Sequence[InboxMigration]) -> list[str]:
        applied = await self._read(lambda sql: dict(sql.run("applied_inbox_migrations")))
        return [migration.name for migration in find_pending(applied, declared)]

    async def query(self, sql: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        return await self._on_thread(lambda connection: run_query(connection, sql, params))

    async def close(self) -> None:
        """Let running reads finish, and fail queued reads with `Stopped`."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self.connections.close)

    async def _read(self, work: Callable[[Statements], T]) -> T:
        return await self._on_thread(lambda connection: work(Statements(connection)))

    async def _on_thread(self, work: Callable[[apsw.Connection], T]) -> T:
        self._assert_open()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)

    def _work(self, work: Callable[[apsw.Connection], T]) -> T:
        self._assert_open()
        try:
            with self.connections.use() as connection:
                with_deadline(connection, self._seconds)
                return work(connection)
        except apsw.Error as error:
            raise translate(error, str(self._path)) from error
        except (OverflowError, UnicodeError) as error:
            raise InvalidEvent(f"No event can match this request: {error}") from error

    def _assert_open(self) -> None:
        if self._closed:
            raise Stopped("The ledger is closed.")
