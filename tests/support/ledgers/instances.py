"""Instances that share a PostgreSQL ledger and a Redis stream, composed as the app does it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic

from ackbox.app import utc_now
from ackbox.model import Caps, Claim, Envelope, Settlement, WorkerId
from ackbox.queues.stream import Entries, Stream
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
from ackbox.telemetry import QueueRecovered
from support.ledgers.events import envelope, record_in
from support.ledgers.facts import Facts
from support.time.polling import until
from support.workers.queue_worker import LEASE, QueueWorker, done

SECOND = timedelta(seconds=1)

FOREVER = timedelta(minutes=5)
WAKE_SECONDS = 5.0  # a worker that is not woken waits much longer
SCAN_SECONDS = 5.0  # the database is queried once a second


class WatchedStream(Stream):
    """A stream that tells how many blocking reads are in progress."""

    listening = 0

    async def read(self, count: int, *, block: float = 0.0) -> Entries:
        self.listening += block > 0
        try:
            return await super().read(count, block=block)
        finally:
            self.listening -= block > 0


class Instance(QueueWorker):
    """A worker with its store, its stream and the facts that it reported."""

    def __init__(
        self, store: PostgresStore, stream: WatchedStream | None, facts: Facts, name: str
    ) -> None:
        super().__init__(store.queue, WorkerId(name))
        self.store = store
        self._stream = stream
        self.facts = facts
        self.done: list[str] = []

    async def work_until(self, end: Callable[[], bool], *, within: float = 10.0) -> None:
        """Work like a real worker: claim, settle, and wait when nothing is due."""
        last = monotonic() + within
        while not end():
            assert monotonic() < last, f"{self.name} has done {len(self.done)}"
            claims = await self.claim(20)
            if not claims:
                await self.queue.wait(SECOND)
            await self.finish(claims)

    async def start_waiting(self) -> asyncio.Task[None]:
        """Return a wait for new events that has begun and listens to the stream."""
        waiting = asyncio.create_task(self.queue.wait(FOREVER))
        await asyncio.sleep(0)  # otherwise the read of the last wait would be mistaken for its own
        await until(self.is_listening)
        return waiting

    def is_listening(self) -> bool:
        return self._stream is not None and self._stream.listening > 0

    async def finish(self, claims: list[Claim]) -> None:
        written = await self.queue.settle([Settlement(claim, done()) for claim in claims])
        self.done += [claim.idempotency_key for claim in claims if claim.id in written]

    async def claims_within(self, seconds: float) -> list[Claim]:
        """Claim until something is claimed, and return it."""
        last = monotonic() + seconds
        while not (claims := await self.claim(caps=Caps(share=1000, held={}), lease=LEASE)):
            assert monotonic() < last, "nothing was claimed"
            await self.queue.wait(SECOND)
        return claims


Join = Callable[..., Awaitable[Instance]]


@asynccontextmanager
async def joined(
    database: str, queue_url: str | None, name: str, *, notify: bool = False
) -> AsyncIterator[Instance]:
    """Open an instance. NOTIFY is off by default, so that only the stream can wake it."""
    facts = Facts()
    stream = None if queue_url is None else WatchedStream(queue_url, facts)
    store = await open_store(
        Address(database),
        clock=utc_now,
        observe=facts,
        options=StoreOptions(notify=notify, relay=stream),
    )
    try:
        yield Instance(store, stream, facts, name)
    finally:
        await store.close()


def names(sent: list[Envelope]) -> list[str]:
    return sorted(event.idempotency_key for event in sent)


async def begin_waiting(instance: Instance) -> None:
    """Let the instance see an empty database and listen."""
    assert await instance.claim() == []
    await instance.queue.wait(timedelta(milliseconds=20))


async def assert_recovered(worker: Instance) -> None:
    while not worker.facts.of(QueueRecovered):
        await worker.claim()
        await worker.queue.wait(timedelta(milliseconds=50))
    await begin_waiting(worker)
    waiting = await worker.start_waiting()
    await record_in(worker.store, [envelope("again")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == [
        "again"
    ]
