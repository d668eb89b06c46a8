"""The backends that `tests/contract` holds to the ports. A new one joins by its entry below."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import apsw

from ackbox.errors import AckboxError
from ackbox.model import (
    Clock,
    Envelope,
    EventId,
    Status,
)
from ackbox.ports import Store
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore, open_store
from ackbox.telemetry import Observer, ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import envelope, noon, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.time.clocks import ManualClock
from support.workers.queue_worker import QueueWorker

Row = dict[str, Any]


class Backend(Protocol):
    """A ledger of its own for one test, and what no port offers yet but a test must see or do."""

    events_table: str
    """The name by which users' SQL reads the events."""

    @property
    def clock(self) -> ManualClock: ...

    @property
    def store(self) -> Store: ...

    @property
    def reader(self) -> SqliteReader | PostgresReader: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def move(self, event_id: EventId, status: Status) -> None:
        """Put the event into this state, as a worker would leave it."""
        ...

    async def remove(self, event_id: EventId) -> None:
        """Delete the event, as retention would."""
        ...

    async def rows(self) -> list[Row]:
        """Return every event with every column, by arrival."""
        ...

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on any table; ids and times are text."""
        ...


Fresh = Callable[[], AbstractAsyncContextManager[Backend]]
"""Opens an empty ledger, and closes it again."""


OpenStore = Callable[..., Awaitable[SqliteStore]]
"""Opens the SQLite ledger of a test; closed at its end."""


class SqliteBackend:
    events_table = "events"
    store: SqliteStore
    reader: SqliteReader

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self.clock = ManualClock()

    async def open(self) -> None:
        self.store = await open_sqlite(self.path, clock=self.clock)
        self.reader = SqliteReader(self.path)

    async def close(self) -> None:
        await self.reader.close()
        await self.store.close()

    async def move(self, event_id: EventId, status: Status) -> None:
        def operation(connection: apsw.Connection) -> None:
            connection.execute("UPDATE events SET status = ? WHERE id = ?", (status, event_id))

        await self.store._writer.submit(operation)

    async def remove(self, event_id: EventId) -> None:
        def operation(connection: apsw.Connection) -> None:
            connection.execute("DELETE FROM events WHERE id = ?", (event_id,))

        await self.store._writer.submit(operation)

    async def rows(self) -> list[Row]:
        return await self.store._writer.submit(all_rows)

    async def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.store._writer.submit(lambda c: c.execute(sql).fetchall())


Server = Callable[[Install], PostgresServer]
MakeBackend = Callable[[Path, Server], Backend]


def _sqlite(folder: Path, _: Server) -> Backend:
    return SqliteBackend(folder)


def _postgres(install: Install) -> MakeBackend:
    return lambda folder, servers: PostgresBackend(folder, servers(install))


BACKENDS: dict[str, MakeBackend] = {
    "sqlite": _sqlite,
    **{str(install): _postgres(install) for install in find_installs()},
}


def unexpected(error: AckboxError) -> None:
    raise AssertionError(f"the store calls this fatal: {error}")


async def open_sqlite(
    path: Path,
    *,
    durability: str = "full",
    clock: Clock = noon,
    observe: Observer = ignore_facts,
    on_fatal: Callable[[AckboxError], None] = unexpected,
    **more: Any,
) -> SqliteStore:
    return await open_store(
        path,
        durability=durability,
        clock=clock,
        observe=observe,
        on_fatal=on_fatal,
        **more,
    )


def all_rows(connection: apsw.Connection) -> list[Row]:
    names = connection.execute("SELECT name FROM pragma_table_info('events') ORDER BY cid")
    columns = [name for (name,) in names]
    rows = connection.execute("SELECT * FROM events ORDER BY ledger_id")
    return [dict(zip(columns, row, strict=True)) for row in rows]


async def record(backend: Backend, *keys: str, **more: Any) -> list[Envelope]:
    """Record one event for each key, in this order."""
    made = [envelope(key, at=backend.clock(), **more) for key in keys]
    await record_in(backend.store, made)
    return made


async def row(backend: Backend, key: str) -> Row:
    """Return the columns of the event with this key."""
    (matching,) = [row for row in await backend.rows() if row["idempotency_key"] == key]
    return matching


async def restart(backend: Backend) -> QueueWorker:
    """Close the ledger and open it again, as another process does. Return a worker of it."""
    await backend.close()
    await backend.open()
    return QueueWorker(backend.store.queue)


async def crash(clock: ManualClock) -> None:
    """Let the leases of a process expire, as they do after its crash."""
    clock.advance(seconds=31)
