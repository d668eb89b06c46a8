"""When the database is queried beside the stream, on a clock that a test advances."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from ackbox.errors import Unavailable
from ackbox.model import Caps, Claim, EventId
from ackbox.queues.stream import Stream
from ackbox.stores.postgres.write.queue import PostgresQueue
from ackbox.stores.postgres.write.relayed_queue import within_share
from ackbox.telemetry import QueueFailed
from support.databases.valkey import ValkeyServer
from support.ledgers.backends import Server
from support.ledgers.events import envelope, record_in
from support.ledgers.facts import Facts
from support.ledgers.redis_backend import RedisBackend
from support.workers.queue_worker import QueueWorker, done, retry_later

HOLDING = Caps(share=1000, held={"webhooks": 1})


@pytest.fixture
async def backend(postgres_of: Server, valkey: ValkeyServer) -> AsyncIterator[RedisBackend]:
    opened = RedisBackend(postgres_of, valkey)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def worker(backend: RedisBackend) -> QueueWorker:
    return QueueWorker(backend.store.queue)


async def record(backend: RedisBackend, *keys: str, **more: Any) -> list[EventId]:
    sent = [envelope(key, at=backend.clock(), **more) for key in keys]
    await record_in(backend.store, sent)
    return [event.id for event in sent]


async def lose_entries(backend: RedisBackend) -> None:
    async with Redis.from_url(backend.valkey.url()) as client:
        await client.flushall()


async def test_while_the_stream_has_entries_the_database_is_not_queried(
    backend: RedisBackend, worker: QueueWorker
) -> None:
    await record(backend, "lost")
    await lose_entries(backend)
    await record(backend, "published")
    assert await worker.keys() == ["published"]
    assert await worker.keys() == ["lost"]


async def test_once_a_second_the_database_is_queried_however_full_the_stream(
    backend: RedisBackend, worker: QueueWorker
) -> None:  # F11
    await record(backend, "lost")
    await lose_entries(backend)
    backend.clock.advance(seconds=1)
    await record(backend, "published")
    assert await worker.keys() == ["lost", "published"]


async def test_a_retry_is_claimed_when_due_however_full_the_stream(
    backend: RedisBackend, worker: QueueWorker
) -> None:
    await record(backend, "retried")
    await worker.settle(await worker.claim_one(), retry_later(after=timedelta(milliseconds=100)))
    backend.clock.advance(seconds=0.1)
    await record(backend, "published")
    assert sorted(await worker.keys()) == ["published", "retried"]


async def test_a_lane_goes_on_however_full_the_stream(
    backend: RedisBackend, worker: QueueWorker
) -> None:
    await record(backend, "a1", "a2", lane="a")
    head = await worker.claim_one()
    await worker.settle(head, done())
    await record(backend, "published")
    assert sorted(await worker.keys()) == ["a2", "published"]


async def test_a_backlog_is_claimed_from_the_database(
    backend: RedisBackend, worker: QueueWorker
) -> None:
    await record(backend, *(f"lost-{n}" for n in range(6)))
    await lose_entries(backend)
    assert len(await worker.claim(2)) == 2
    await record(backend, "published")
    assert await worker.keys(2) == ["lost-2", "lost-3"]
    assert await worker.keys(4) == ["lost-4", "lost-5", "published"]


async def test_an_entry_that_cannot_be_claimed_does_not_keep_an_idle_worker_awake(
    backend: RedisBackend, worker: QueueWorker
) -> None:
    (event_id,) = await record(backend, "held")
    await worker.claim_one()
    assert await worker.claim(caps=HOLDING) == []
    async with Redis.from_url(backend.valkey.url()) as client:
        waiting = asyncio.ensure_future(worker.queue.wait(timedelta(seconds=5)))
        await client.xadd("ackbox", {str(event_id): "webhooks"})
        await waiting
    assert await worker.claim(caps=HOLDING) == []
    started = monotonic()
    await worker.queue.wait(timedelta(milliseconds=300))
    assert monotonic() - started > 0.25


async def test_a_published_event_is_claimed_though_a_scan_does_not_see_it_yet(
    backend: RedisBackend, worker: QueueWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_nothing(*_: object, **__: object) -> list[Claim]:
        return []

    monkeypatch.setattr(PostgresQueue, "claim", find_nothing)
    backend.clock.advance(seconds=1)
    await record(backend, "published")
    assert await worker.keys() == ["published"]


@pytest.mark.parametrize("first", ["stream", "database"])
async def test_claims_made_before_the_database_failed_are_not_lost(
    backend: RedisBackend, worker: QueueWorker, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    await record(backend, "published", "over", source="x")
    if first == "database":
        backend.clock.advance(seconds=1)
        monkeypatch.setattr(Stream, "read", fail)
    else:
        monkeypatch.setattr(PostgresQueue, "claim", fail)
    assert "published" in await worker.keys(caps=Caps(share=1, held={}))
    with pytest.raises(Unavailable):
        await worker.claim(caps=Caps(share=1, held={"x": 1}))


async def fail(*_: object, **__: object) -> list[Claim]:
    raise Unavailable("The database cannot be reached.")


@pytest.mark.parametrize(
    ("caps", "wanted"),
    [
        (Caps(share=9, held={}), "abcd"),
        (Caps(share=1, held={}), "ac"),
        (Caps(share=2, held={"x": 1}), "acd"),
        (Caps(share=2, held={"x": 2, "y": 5}), ""),
        (Caps(share=9, held={}, alone=1), "ac"),
    ],
)
def test_no_source_gets_more_than_its_share_of_published_events(caps: Caps, wanted: str) -> None:
    entries = [(EventId(name), source) for name, source in zip("abcd", "xxyy", strict=True)]
    assert within_share(entries, caps) == list(wanted)


async def test_an_unexpected_error_of_the_client_is_not_raised(valkey: ValkeyServer) -> None:
    """An error of the stream must not lose the claims that the database made."""
    facts = Facts()
    stream = Stream(f"{valkey.url()}?protocol=3", facts)
    try:
        for _ in range(2):
            await stream.add({EventId("a"): "webhooks"})
            assert await stream.read(5) == []
        assert len(facts.of(QueueFailed)) == 1
    finally:
        await stream.close()
