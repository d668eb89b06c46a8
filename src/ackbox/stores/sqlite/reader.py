"""The reading side: read-only connections, one statement at a time, never for long (L13)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any, TypeVar

import apsw
import msgspec

from ackbox.errors import InvalidEvent, Stopped
from ackbox.model import (
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Page,
    Stats,
    Status,
    from_text,
    to_text,
)
from ackbox.stores.sql import load_blocks
from ackbox.stores.sqlite.connections import open_reader, translate, with_deadline

T = TypeVar("T")

_THREADS = 2
_SECONDS = 5.0
_WINDOW = 10_000
_INDEXED = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})
_BEYOND = 1 << 62


class SqliteReader:
    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._sql = load_blocks("ackbox.stores.sqlite")
        self._own = local()
        self._opened: list[apsw.Connection] = []
        self._closed = False
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ackbox-reader")

    async def event(self, event_id: EventId) -> EventRecord | None:
        return await self._read(lambda run: _first(self._by_id(run, [event_id])))

    async def event_by_key(self, source: str, idempotency_key: str) -> EventRecord | None:
        def read(run: Run) -> EventRecord | None:
            key = {"source": source, "idempotency_key": idempotency_key}
            return _first(self._by_id(run, [row[0] for row in run("id_by_key", key)]))

        return await self._read(read)

    async def ids_starting(self, prefix: str, *, limit: int) -> list[EventId]:
        asked = {"prefix": prefix, "limit": limit}
        rows = await self._read(lambda run: run("ids_by_prefix", asked))
        return [EventId(row[0]) for row in rows]

    async def payload(self, event_id: EventId) -> bytes | None:
        rows = await self._read(lambda run: run("payload", {"id": event_id}))
        return rows[0][0] if rows else None

    async def events(
        self, where: EventFilter, *, order: Order, limit: int, cursor: int | None = None
    ) -> Page:
        question = _question(where, order, limit, cursor)
        return await self._read(lambda run: self._page(run, f"events_{order}", question))

    async def stats(self) -> Stats:
        def read(run: Run) -> Stats:
            counts = {Status(status): count for status, count in run("tallies", {})}
            oldest = run("oldest_pending", {})
            return Stats(counts, from_text(oldest[0][0]) if oldest else None)

        return await self._read(read)

    async def close(self) -> None:
        """What runs is finished, what is queued is told so."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._opened:
            connection.close(True)

    def _page(self, run: "Run", block: str, question: dict[str, Any]) -> Page:
        rows = run(block, question)
        seen, edge, last, _ = rows[-1]
        found = [row[3] for row in rows if row[3] is not None]
        items = self._by_id(run, found)  # fewer, if some were pruned in between
        items.sort(key=lambda event: event.ledger_id, reverse=block == "events_newest")
        if len(found) == question["limit"]:
            return Page(items, last)
        return Page(items, edge if seen == question["window"] else None)

    def _by_id(self, run: "Run", ids: list[str]) -> list[EventRecord]:
        rows = run("events_by_id", {"ids": msgspec.json.encode(ids).decode()})
        return [_event(row) for row in rows]

    async def _read(self, work: Callable[["Run"], T]) -> T:
        self._assert_open()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)

    def _work(self, work: Callable[["Run"], T]) -> T:
        self._assert_open()
        try:
            connection = self._connection()
            with_deadline(connection, _SECONDS)
            return work(lambda name, values: connection.execute(self._sql[name], values).fetchall())
        except apsw.Error as error:
            raise translate(error, str(self._path)) from error
        except (OverflowError, UnicodeError) as error:
            raise InvalidEvent(f"No event can be asked for like this: {error}") from error

    def _assert_open(self) -> None:
        if self._closed:
            raise Stopped("The ledger is closed.")

    def _connection(self) -> apsw.Connection:
        if not hasattr(self._own, "connection"):
            self._own.connection = open_reader(self._path, vfs=self._vfs)
            self._opened.append(self._own.connection)
        connection: apsw.Connection = self._own.connection
        return connection


Run = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


def _question(where: EventFilter, order: Order, limit: int, cursor: int | None) -> dict[str, Any]:
    """A filter that an index serves needs to look at no more rows than it returns."""
    scan = where.status if where.status in _INDEXED else "all"
    exact = where == EventFilter(status=where.status) and where.status in {None, *_INDEXED}
    start = _BEYOND if order is Order.NEWEST else 0
    return {
        "scan": scan,
        "cursor": start if cursor is None else cursor,
        "window": limit if exact else max(_WINDOW, limit),
        "limit": limit,
        "status": where.status,
        "retrying": where.retrying,
        "source": where.source,
        "event_type": where.event_type,
        "since": to_text(where.since) if where.since else None,
        "until": to_text(where.until) if where.until else None,
    }


def _event(row: tuple[Any, ...]) -> EventRecord:
    fields = dict(zip(EventRecord.__struct_fields__, row, strict=True))
    fields["status"] = Status(fields["status"])
    for name in ("created_at", "updated_at", "last_seen_at"):
        fields[name] = from_text(fields[name])
    for name in ("retry_after", "lease_until", "source_emitted_at", "processed_at"):
        fields[name] = fields[name] and from_text(fields[name])
    return EventRecord(**fields)


def _first(events: list[EventRecord]) -> EventRecord | None:
    return events[0] if events else None
