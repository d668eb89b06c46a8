"""`python -m bench.peers.pgqueuer`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.driver import PAYLOAD, Enqueue, Ran, main

CONNECTIONS = 20
BATCH = 100


class Pgqueuer:
    async def prepare(self, url: str) -> None:
        async with _queries(url) as queries:
            await queries.install()
            await queries.optimize_autovacuum()

    @asynccontextmanager
    async def enqueueing(self, url: str) -> AsyncIterator[Enqueue]:
        async with _queries(url) as queries:
            yield lambda key: queries.enqueue("job", _payload(key))

    async def preload(self, url: str, keys: list[str]) -> None:
        async with _queries(url) as queries:
            count = len(keys)
            await queries.enqueue(["job"] * count, [*map(_payload, keys)], [0] * count)

    async def work(self, url: str, ran: Ran) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

        async def job(job: Job) -> None:
            ran()

        queuer.entrypoint("job")(job)
        await queuer.run(batch_size=BATCH)


@asynccontextmanager
async def _queries(url: str) -> AsyncIterator[Queries]:
    async with asyncpg.create_pool(url, min_size=5, max_size=CONNECTIONS) as pool:
        yield Queries(AsyncpgPoolDriver(pool))


def _payload(key: str) -> bytes:
    return json.dumps({"key": key, "payload": PAYLOAD}, separators=(",", ":")).encode()


if __name__ == "__main__":
    main(Pgqueuer())
