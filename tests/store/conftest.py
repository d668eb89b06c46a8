from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ackbox.stores.sqlite.store import SqliteStore
from support.backends import OpenStore, Server, open_sqlite
from support.facts import Facts, Fatal
from support.faulty_vfs import FaultyVfs, faulty_vfs
from support.postgres import find_installs
from support.postgres_backend import PostgresBackend


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
