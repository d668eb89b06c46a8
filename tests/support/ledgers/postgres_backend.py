"""The PostgreSQL ledger of a test, on a server whose `now()` a test can move."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ackbox.model import EventId, Status, to_text
from ackbox.stores.postgres.database import Address, Connection, connect
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
from ackbox.telemetry import ignore_facts
from support.databases.postgres import TESTS_PATH, PostgresServer
from support.ledgers.events import NOON
from support.time.clocks import ManualClock

REBUILD_DERIVED = (
    "DELETE FROM live_events",
    "SELECT refresh_live_events(ARRAY(SELECT ledger_id FROM events))",
    "DELETE FROM status_counts",
    "INSERT INTO status_counts (status, events)"
    " SELECT status, count(*) FROM events GROUP BY status",
)
"""Statements that rebuild `live_events` and `status_counts` from `events`."""
_MOVE = """UPDATE events
SET status = $2, lease_until = CASE WHEN $2 = 'processing' THEN now() + interval '30 s' END
WHERE id = $1::text::uuid"""
_CLOCK = """CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.pg_read_file('{file}')::timestamptz $$"""


async def connect_for_tests(url: str, *, seconds: float = 15.0) -> Connection:
    """Return a connection that is configured like ours and finds our tables by their bare names."""
    connection = await connect(Address(url), seconds=seconds)
    await connection.execute(f"SET search_path = {TESTS_PATH}, pg_catalog")
    return connection


class ServerClock(ManualClock):
    """A clock that the server reads from a file, so that moving it needs no connection."""

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__()

    @property
    def now(self) -> datetime:
        return self._now

    @now.setter
    def now(self, moment: datetime) -> None:
        self._now = moment
        with self._file.open("r+") as file:  # overwrite in place: the server may be reading
            file.write(to_text(moment))


class PostgresBackend:
    events_table = "ackbox.events"
    store: PostgresStore
    reader: PostgresReader
    _connection: Connection
    """The connection for statements that no port offers."""

    def __init__(self, _: Path, server: PostgresServer) -> None:
        self.url = _database_of(server)
        self.clock = ServerClock(_clock_file(server))
        self._turn = asyncio.Lock()
        self._cleaned = False

    async def open(self) -> None:
        address = Address(self.url)
        self._connection = await connect_for_tests(self.url)
        if not self._cleaned:
            await self._clean()
            self._cleaned = True
        self.store = await open_store(
            address, clock=self.clock, observe=ignore_facts, options=self.options()
        )
        self.reader = PostgresReader(address)

    def options(self) -> StoreOptions:
        """Let every claim be a full scan, which claims all that is due in the order of due times.
        Other tests show the claims that continue after their cursors (F37)."""
        return StoreOptions(scan_seconds=3600.0)

    async def close(self) -> None:
        await self.reader.close()
        await self.store.close()
        await self._connection.close()

    async def move(self, event_id: EventId, status: Status) -> None:
        await self._fetch_records(_MOVE, event_id, status)
        await self.rebuild_derived()

    async def remove(self, event_id: EventId) -> None:
        await self._fetch_records("DELETE FROM events WHERE id = $1::text::uuid", event_id)
        await self.rebuild_derived()

    async def rebuild_derived(self) -> None:
        """Rebuild the derived tables after a test has changed `events` directly."""
        for statement in REBUILD_DERIVED:
            await self._fetch_records(statement)

    async def rows(self) -> list[dict[str, Any]]:
        rows = await self._fetch_records("SELECT * FROM events ORDER BY ledger_id")
        return [_plain(dict(row)) for row in rows]

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(map(_text, row)) for row in await self._fetch_records(sql)]

    async def _fetch_records(self, sql: str, *values: object) -> Any:
        async with self._turn:
            return await self._connection.fetch(sql, *values)

    async def _clean(self) -> None:
        """Remove the rows and users' tables of earlier tests."""
        users = await self._tables("public")
        drops = [f'DROP TABLE public."{name}" CASCADE' for name in users]
        ours = await self._tables("ackbox") - {"schema_migrations"}
        deletes = [f"DELETE FROM ackbox.{name}" for name in ours]
        if users or ours:
            await self._connection.execute("; ".join([*drops, *deletes]))

    async def _tables(self, schema: str) -> set[str]:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
        return {row[0] for row in await self._fetch_records(sql, schema)}


@cache
def _database_of(server: PostgresServer) -> str:
    """Return the database of this process. Its tests share it, one after the other."""
    url = server.create_database()
    name = url.rpartition("/")[2]
    server.execute(f'ALTER DATABASE "{name}" SET search_path = public, pg_catalog', name)
    server.execute(_CLOCK.format(file=_clock_file(server)), name)
    return url


@cache
def _clock_file(server: PostgresServer) -> Path:
    file = server.folder / "clock"
    file.write_text(to_text(NOON))
    file.chmod(0o644)
    return file


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as SQLite shows it: times and ids are text."""
    with suppress(KeyError):
        del row["payload_json"]
    return {name: _text(value) for name, value in row.items()}


def _text(value: Any) -> Any:
    match value:
        case datetime():
            return to_text(value)
        case bool() | int() | str() | bytes() | timedelta() | None:
            return value
        case _:
            return str(value)
