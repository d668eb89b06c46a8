"""A real PostgreSQL database for tests of commands."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from ackbox.model import EventFilter, Order
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import ignore_facts
from support.databases.guarded import clean_environment
from support.databases.postgres import PostgresServer

Open = Callable[..., Awaitable[PostgresStore]]
"""A function that opens the ledger in a schema."""


class PostgresLedger:
    """An empty database that belongs to one test."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.create_database()

    @property
    def database(self) -> str:
        return self.url.rpartition("/")[2]

    def execute(self, sql: str) -> str:
        return self.server.execute(sql, self.database)

    def fill(self, work: Callable[[PostgresStore], Awaitable[object]]) -> None:
        async def run() -> None:
            store = await open_store(
                Address(self.url), clock=lambda: datetime.now(UTC), observe=ignore_facts
            )
            try:
                await work(store)
            finally:
                await store.close()

        asyncio.run(run())

    @contextmanager
    def open_transaction(self) -> Iterator[int]:
        """Keep a transaction open, and yield the process id of its session."""
        with subprocess.Popen(
            [self.server.bin / "psql", "-XAtq", self.url],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as psql:
            assert psql.stdin is not None
            assert psql.stdout is not None
            psql.stdin.write("BEGIN; SELECT pg_backend_pid();\n")
            psql.stdin.flush()
            yield int(psql.stdout.readline())
            psql.stdin.close()


@asynccontextmanager
async def reading(address: Address) -> AsyncIterator[PostgresReader]:
    reader = PostgresReader(address)
    try:
        yield reader
    finally:
        await reader.close()


async def keys(ledger: PostgresLedger, schema: str) -> list[str]:
    """List the keys of a ledger as an export does."""
    async with reading(Address(ledger.url, schema=schema)) as reader:
        page = await reader.events(EventFilter(), order=Order.OLDEST, limit=50)
    return [event.idempotency_key for event in page.items]


@contextmanager
def role(ledger: PostgresLedger, name: str, *statements: str) -> Iterator[str]:
    """Create a role, and yield the URL with which it connects."""
    ledger.execute(f"CREATE ROLE {name} LOGIN; {'; '.join(statements)}")
    try:
        yield ledger.url.replace("postgres@", f"{name}@")
    finally:
        ledger.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")
