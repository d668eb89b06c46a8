"""A PostgreSQL ledger for tests, with a Redis stream before its queue.

When `record` returns, the events are in the stream, so that the claims of a test find them there.
The queue uses the test's clock, so that a test decides when the database is queried.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace
from redis.asyncio import Redis

from ackbox.model import Receipt, Submission
from ackbox.queues.stream import Stream
from ackbox.stores.postgres.store import StoreOptions
from ackbox.stores.postgres.write.relayed_queue import RelayedQueue
from ackbox.telemetry import ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.valkey import ValkeyServer
from support.ledgers.postgres_backend import PostgresBackend

MAJOR = 16


class RedisBackend(PostgresBackend):
    def __init__(self, servers: Callable[[Install], PostgresServer], valkey: ValkeyServer) -> None:
        (install,) = [install for install in find_installs() if install.major == MAJOR]
        super().__init__(Path(), servers(install))
        self.valkey = valkey

    def options(self) -> StoreOptions:
        return replace(
            super().options(),
            relay=Stream(self.valkey.url(), ignore_facts),
            monotonic=lambda: self.clock().timestamp(),
        )

    async def open(self) -> None:
        async with Redis.from_url(self.valkey.url()) as client:
            await client.flushall()
        await super().open()
        record, queue = self.store.record, self.store.queue
        assert isinstance(queue, RelayedQueue)

        async def record_and_send(submissions: Sequence[Submission]) -> list[Receipt]:
            receipts = await record(submissions)
            await queue.send()
            return receipts

        self.store.record = record_and_send  # type: ignore[method-assign]
