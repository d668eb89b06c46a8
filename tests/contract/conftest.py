from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ackbox.ports import Reader, Store
from support.ledgers.backends import BACKENDS, Backend, Fresh, Server
from support.ledgers.redis_backend import RedisBackend
from support.time.clocks import ManualClock
from support.workers.queue_worker import OTHER, QueueWorker

QUEUE = {
    "test_claims",
    "test_discard",
    "test_lanes",
    "test_leases",
    "test_outcomes",
    "test_parked",
    "test_replay",
    "test_submissions",
    "test_suspects",
    "test_wake_ups",
    "test_worker",
}
Make = Callable[[str, Path], Backend]


@pytest.fixture(scope="session")
def make_backend(request: pytest.FixtureRequest, postgres_of: Server) -> Make:
    """Return a factory of backends; a server is started when the first backend needs it."""

    def make(name: str, folder: Path) -> Backend:
        if name == "redis":
            return RedisBackend(postgres_of, request.getfixturevalue("valkey"))
        return BACKENDS[name](folder, postgres_of)

    return make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test on every backend. The Redis queue has no ledger of its own, so it runs only
    the modules about claims."""
    if "backend" in metafunc.fixturenames:
        with_queue = metafunc.module.__name__.rpartition(".")[2] in QUEUE
        names = [*BACKENDS, "redis"] if with_queue else list(BACKENDS)
        metafunc.parametrize("backend", sorted(names), indirect=True)


@pytest.fixture
async def backend(
    request: pytest.FixtureRequest, tmp_path: Path, make_backend: Make
) -> AsyncIterator[Backend]:
    opened = make_backend(request.param, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def reader(backend: Backend) -> Reader:
    return backend.reader


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def fresh(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_backend: Make,
) -> Fresh:
    """Open an empty ledger for each example of Hypothesis."""

    @asynccontextmanager
    async def open_fresh() -> AsyncIterator[Backend]:
        opened = make_backend(request.param, tmp_path_factory.mktemp("fresh"))
        await opened.open()
        try:
            yield opened
        finally:
            await opened.close()

    return open_fresh


@pytest.fixture
def me(backend: Backend) -> QueueWorker:
    return QueueWorker(backend.store.queue)


@pytest.fixture
def other(backend: Backend) -> QueueWorker:
    return QueueWorker(backend.store.queue, OTHER)


@pytest.fixture
def clock(backend: Backend) -> ManualClock:
    return backend.clock
