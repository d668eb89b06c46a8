"""When the database is asked beside the stream, on a clock that a test moves."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from ackbox.errors import Unavailable
from ackbox.model import Caps, Claim, EventId
from ackbox.queues.redis_streams import within_share
from ackbox.queues.stream import Stream
from support.backends import Server
from support.events import envelope
from support.facts import Facts
from support.redis_backend import RedisBackend
from support.valkey import ValkeyServer
from support.work import Hands, boom, done

HOLDING = Caps(share=1000, held={"webhooks": 1})


@pytest.fixture
async def backend(postgres_of: Server, valkey: ValkeyServer) -> AsyncIterator[RedisBackend]:
    opened = RedisBackend(postgres_of, valkey)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def me(backend: RedisBackend) -> Hands:
    return Hands(backend.store.queue)


async def record(backend: RedisBackend, *keys: str, **more: Any) -> list[EventId]:
    sent = [envelope(key, at=backend.clock(), **more) for key in keys]
    await backend.store.record(sent)
    return [one.id for one in sent]


async def lose_announcements(backend: RedisBackend) -> None:
    async with Redis.from_url(backend.valkey.url()) as client:
        await client.flushall()


async def test_while_the_stream_has_something_the_database_is_not_asked(
    backend: RedisBackend, me: Hands
) -> None:
    await record(backend, "lost")
    await lose_announcements(backend)
    await record(backend, "told")
    assert await me.keys() == ["told"]
    assert await me.keys() == ["lost"]


async def test_once_a_second_the_database_is_asked_however_much_the_stream_has(
    backend: RedisBackend, me: Hands
) -> None:  # F11
    await record(backend, "lost")
    await lose_announcements(backend)
    backend.clock.advance(seconds=1)
    await record(backend, "told")
    assert await me.keys() == ["lost", "told"]


async def test_a_retry_comes_when_it_is_due_however_much_the_stream_has(
    backend: RedisBackend, me: Hands
) -> None:
    await record(backend, "retried")
    await me.settle(await me.claim_one(), boom(after=timedelta(milliseconds=100)))
    backend.clock.advance(seconds=0.1)
    await record(backend, "told")
    assert sorted(await me.keys()) == ["retried", "told"]


async def test_a_lane_goes_on_however_much_the_stream_has(backend: RedisBackend, me: Hands) -> None:
    await record(backend, "a1", "a2", lane="a")
    head = await me.claim_one()
    await me.settle(head, done())
    await record(backend, "told")
    assert sorted(await me.keys()) == ["a2", "told"]


async def test_while_there_is_a_backlog_the_database_hands_it_out(
    backend: RedisBackend, me: Hands
) -> None:
    await record(backend, *(f"lost-{n}" for n in range(6)))
    await lose_announcements(backend)
    assert len(await me.claim(2)) == 2
    await record(backend, "told")
    assert await me.keys(2) == ["lost-2", "lost-3"]
    assert await me.keys(4) == ["lost-4", "lost-5", "told"]


async def test_an_announcement_that_comes_to_nothing_does_not_keep_an_idle_worker_awake(
    backend: RedisBackend, me: Hands
) -> None:
    (event_id,) = await record(backend, "held")
    await me.claim_one()
    assert await me.claim(caps=HOLDING) == []
    async with Redis.from_url(backend.valkey.url()) as client:
        waiting = asyncio.ensure_future(me.queue.wait(timedelta(seconds=5)))
        await asyncio.sleep(0.05)
        await client.xadd("ackbox", {str(event_id): "webhooks"})
        await waiting
    assert await me.claim(caps=HOLDING) == []
    started = monotonic()
    await me.queue.wait(timedelta(milliseconds=300))
    assert monotonic() - started > 0.25


async def test_what_is_announced_is_claimed_though_the_database_does_not_see_it_yet(
    backend: RedisBackend, me: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_claim = backend.store._own_queue.claim

    async def claim_only_by_id(*args: Any, **named: Any) -> list[Claim]:
        return await own_claim(*args, **named) if named["ids"] else []

    monkeypatch.setattr(backend.store._own_queue, "claim", claim_only_by_id)
    backend.clock.advance(seconds=1)
    await record(backend, "told")
    assert await me.keys() == ["told"]


@pytest.mark.parametrize("first", ["stream", "database"])
async def test_what_was_claimed_before_the_database_failed_is_not_lost(
    backend: RedisBackend, me: Hands, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    await record(backend, "told", "over", source="x")
    if first == "database":
        backend.clock.advance(seconds=1)
        monkeypatch.setattr(Stream, "read", fail)
    else:
        own_claim = backend.store._own_queue.claim

        async def claim_only_by_id(*args: Any, **named: Any) -> list[Claim]:
            return await own_claim(*args, **named) if named["ids"] else await fail()

        monkeypatch.setattr(backend.store._own_queue, "claim", claim_only_by_id)
    assert "told" in await me.keys(caps=Caps(share=1, held={}))
    with pytest.raises(Unavailable):
        await me.claim(caps=Caps(share=1, held={"x": 1}))


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
def test_no_source_gets_more_than_its_share_of_what_is_announced(caps: Caps, wanted: str) -> None:
    announced = [(EventId(name), source) for name, source in zip("abcd", "xxyy", strict=True)]
    assert within_share(announced, caps) == list(wanted)


async def test_a_client_that_raises_anything_says_nothing(valkey: ValkeyServer) -> None:
    """A claim beside it must not be lost for it."""
    facts = Facts()
    stream = Stream(f"{valkey.url()}?protocol=3", facts)
    try:
        for _ in range(2):
            await stream.add({EventId("a"): "webhooks"})
            await stream.read(5)
    finally:
        await stream.close()
