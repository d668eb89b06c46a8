"""A real PostgreSQL database for tests of commands."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.telemetry import ignore_facts
from support.guarded import clean_environment
from support.postgres import PostgresServer


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

    def fill(self, work: Callable[[PostgresStore], Awaitable[None]]) -> None:
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
