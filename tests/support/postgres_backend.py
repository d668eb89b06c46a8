"""The PostgreSQL ledger of a test, on a server whose `now()` a test can move."""

from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ackbox.model import EventId, Status, to_text
from ackbox.stores.postgres.database import Address, connect
from ackbox.stores.postgres.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import to_nobody
from support.clock import HandMoved
from support.events import NOON
from support.postgres import PostgresServer

_TABLES = (
    *("events", "agenda", "tallies", "lanes", "checkpoints", "tombstones", "audit", "heartbeat"),
    "promotion",
)
FOLLOW = (
    "DELETE FROM agenda",
    "SELECT ackbox_follow(ARRAY(SELECT ledger_id FROM events))",
    "DELETE FROM tallies",
    "INSERT INTO tallies (status, events) SELECT status, count(*) FROM events GROUP BY status",
)
"""The agenda and the tallies made anew from `events`."""
_MOVE = """UPDATE events
SET status = $2, lease_until = CASE WHEN $2 = 'processing' THEN now() + interval '30 s' END
WHERE id = $1::text::uuid"""
_CLOCK = """CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.pg_read_file('{file}')::timestamptz $$"""


class ServerClock(HandMoved):
    """The server reads the time from a file: whoever moves it needs no connection."""

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__()

    @property
    def now(self) -> datetime:
        return self._now

    @now.setter
    def now(self, moment: datetime) -> None:
        self._now = moment
        with self._file.open("r+") as file:  # replaced in place: the server may be reading it
            file.write(to_text(moment))


class PostgresBackend:
    store: PostgresStore
    reader: PostgresReader

    def __init__(self, _: Path, server: PostgresServer) -> None:
        self.url = _database_of(server)
        self.clock = ServerClock(_clock_file(server))
        self._cleaned = False

    async def open(self) -> None:
        if not self._cleaned:
            await self._clean()
            self._cleaned = True
        address = Address(self.url)
        self.store = await open_store(address, clock=self.clock, observe=to_nobody)
        self.reader = PostgresReader(address)

    async def close(self) -> None:
        await self.reader.close()
        await self.store.close()

    async def move(self, event_id: EventId, status: Status) -> None:
        await self._execute(_MOVE, event_id, status)
        await self.follow()

    async def remove(self, event_id: EventId) -> None:
        await self._execute("DELETE FROM events WHERE id = $1::text::uuid", event_id)
        await self.follow()

    async def follow(self) -> None:
        """After `events` was changed by hand."""
        for statement in FOLLOW:
            await self._execute(statement)

    async def rows(self) -> list[dict[str, Any]]:
        connection = await connect(Address(self.url))
        try:
            rows = await connection.fetch("SELECT * FROM events ORDER BY ledger_id")
        finally:
            await connection.close()
        return [_plain(dict(row)) for row in rows]

    async def ask(self, sql: str) -> list[tuple[Any, ...]]:
        connection = await connect(Address(self.url))
        try:
            rows = await connection.fetch(sql)
        finally:
            await connection.close()
        return [tuple(map(_text, row)) for row in rows]

    async def _execute(self, sql: str, *values: object) -> None:
        connection = await connect(Address(self.url))
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()

    async def _clean(self) -> None:
        """What an earlier test left; users' own tables too."""
        connection = await connect(Address(self.url))
        try:
            found = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
            names = {row[0] for row in found}
            for name in names - {*_TABLES, "schema_migrations"}:
                await connection.execute(f'DROP TABLE "{name}" CASCADE')
            for name in _TABLES:
                if name in names:
                    await connection.execute(f"DELETE FROM {name}")
        finally:
            await connection.close()


@cache
def _database_of(server: PostgresServer) -> str:
    """One for all tests of this process: they run one after the other."""
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
    """As SQLite would show it: times and ids are text there."""
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
