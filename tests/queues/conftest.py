from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest
from redis.asyncio import Redis

from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.valkey import ValkeyServer, running_valkey
from support.ledgers.instances import Instance, Join, joined


@pytest.fixture
def database(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[str]:
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    yield url
    server.recycle_database(url)


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that a test may kill, empty and start again."""
    with running_valkey(tmp_path) as server:
        yield server


@pytest.fixture
async def redis(own_valkey: ValkeyServer) -> AsyncIterator[Redis]:
    """A client of that server, beside those of the instances."""
    async with Redis.from_url(own_valkey.url(), decode_responses=True) as client:
        yield client


@pytest.fixture
async def join(database: str, own_valkey: ValkeyServer) -> AsyncIterator[Join]:
    """Start another instance on this database and, unless a test names another, this stream."""
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def join_one(queue_url: str | None = own_valkey.url()) -> Instance:
            name = f"instance-{next(numbers)}"
            return await stack.enter_async_context(joined(database, queue_url, name))

        yield join_one
