import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ackbox.model import Envelope
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.backends import open_sqlite
from support.ledgers.events import record_in
from support.servers.cli import Cli, Ledger
from support.servers.server import Server, running


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Make `ackbox.db` with these events. No server holds it."""

    def make(envelopes: Sequence[Envelope]) -> Path:
        async def fill(path: Path) -> None:
            store = await open_sqlite(path)
            for start in range(0, len(envelopes), 1000):
                await record_in(store, envelopes[start : start + 1000])
            await store.close()

        path = tmp_path / "ackbox.db"
        asyncio.run(fill(path))
        return path

    return make


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests of a pytest worker. They must not change its settings or stop it."""
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def target(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    yield url
    server.recycle_database(url)
