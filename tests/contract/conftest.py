from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ackbox.ports import Reader, Store
from support.backends import BACKENDS, Backend, Fresh


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    opened = BACKENDS[request.param](tmp_path)
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
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """For Hypothesis: an empty ledger for each example."""

    @asynccontextmanager
    async def open_fresh() -> AsyncIterator[Backend]:
        opened = BACKENDS[request.param](tmp_path_factory.mktemp("fresh"))
        await opened.open()
        try:
            yield opened
        finally:
            await opened.close()

    return open_fresh
