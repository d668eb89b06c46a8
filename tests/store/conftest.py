from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackbox.app import utc_now
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.telemetry import ignore_facts
from support.databases.postgres import find_installs
from support.databases.postgres_cli import Open, PostgresLedger
from support.faults.faulty_vfs import FaultyVfs, faulty_vfs
from support.ledgers.backends import OpenStore, Server, open_sqlite
from support.ledgers.facts import Facts, Fatal
from support.ledgers.postgres_backend import PostgresBackend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    with faulty_vfs() as registered:
        yield registered


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def fatal() -> Fatal:
    return Fatal()


@pytest.fixture
async def open_it(path: Path, facts: Facts, fatal: Fatal) -> AsyncIterator[OpenStore]:
    """Open the ledger of this test. It is closed at the end of the test, in any state."""
    opened: list[SqliteStore] = []

    async def open_now(**more: Any) -> SqliteStore:
        store = await open_sqlite(path, observe=facts, on_fatal=fatal, **more)
        opened.append(store)
        return store

    yield open_now
    for store in opened:
        await store.close()


@pytest.fixture
async def faulty(open_it: OpenStore, vfs: FaultyVfs) -> AsyncIterator[SqliteStore]:
    """A store on files that fail on demand."""
    yield await open_it(vfs=vfs.name)
    vfs.heal()


@pytest.fixture
async def backend(postgres_of: Server, tmp_path: Path) -> AsyncIterator[PostgresBackend]:
    """A ledger on the newest PostgreSQL, for behaviour that is the same in all versions."""
    opened = PostgresBackend(tmp_path, postgres_of(find_installs()[-1]))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def ledger(postgres_of: Server) -> Iterator[PostgresLedger]:
    """An empty database."""
    created = PostgresLedger(postgres_of(find_installs()[-1]))
    yield created
    created.server.recycle_database(created.url)


@pytest.fixture
async def opened(ledger: PostgresLedger) -> AsyncIterator[Open]:
    """Open the ledger in a schema. It is closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def open_in(
            schema: str = "ackbox", *, url: str = "", pooled: bool = False, notify: bool = False
        ) -> PostgresStore:
            address = Address(url or ledger.url, schema=schema, pooled=pooled)
            store = await open_store(
                address, clock=utc_now, observe=ignore_facts, options=StoreOptions(notify=notify)
            )
            stack.push_async_callback(store.close)
            return store

        yield open_in
