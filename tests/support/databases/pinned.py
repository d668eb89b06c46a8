"""A transaction that stays open: vacuum must keep every dead row that it could see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import asyncpg

from ackbox.stores.postgres.store import PostgresStore
from support.databases.postgres import TESTS_PATH
from support.http.posting import new_key
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import QueueWorker, done

_BATCH = 200


@asynccontextmanager
async def pinned(url: str) -> AsyncIterator[None]:
    """Keep a transaction open that has a transaction id and a snapshot."""
    connection = await asyncpg.connect(url, server_settings={"search_path": TESTS_PATH})
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT pg_current_xact_id(), count(*) FROM events")
        yield
    finally:
        await connection.close()


async def claim_seconds(store: PostgresStore, events: int) -> list[float]:
    """Record, claim and settle events batch by batch, and return how long each claim took."""
    worker = QueueWorker(store.queue)
    took: list[float] = []
    for _ in range(events // _BATCH):
        await record_in(store, [envelope(new_key()) for _ in range(_BATCH)])
        started = monotonic()
        claims = await worker.claim(_BATCH)
        took.append(monotonic() - started)
        assert len(claims) == _BATCH
        await worker.settle_all(claims, done())
    return took
