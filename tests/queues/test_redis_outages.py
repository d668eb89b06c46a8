"""The broker may be unavailable, or refuse writes: events run once, only later."""

import asyncio
from datetime import timedelta

from redis.asyncio import Redis

from ackbox.telemetry import QueueFailed, QueueRecovered
from support.databases.valkey import ValkeyServer
from support.ledgers.events import envelope, record_in
from support.ledgers.instances import (
    SCAN_SECONDS,
    WAKE_SECONDS,
    Join,
    assert_recovered,
    begin_waiting,
)
from support.time.polling import until


async def test_without_a_broker_everything_starts_and_runs(
    join: Join, own_valkey: ValkeyServer
) -> None:
    own_valkey.stop()
    worker = await join()
    for n in range(20):
        await record_in(worker.store, [envelope(f"k{n}")])
        assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == [
            f"k{n}"
        ]
    assert len(worker.facts.of(QueueFailed)) == 1


async def test_a_broker_that_comes_back_is_used_again(join: Join, own_valkey: ValkeyServer) -> None:
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    own_valkey.kill()
    for n in range(10):
        await record_in(ingester.store, [envelope(f"k{n}")])
    await worker.work_until(lambda: len(worker.done) == 10)
    own_valkey.start()
    await assert_recovered(worker)
    assert len(worker.facts.of(QueueFailed)) == 1


async def test_the_instance_that_records_is_woken_when_the_broker_cannot(
    join: Join, own_valkey: ValkeyServer
) -> None:
    own_valkey.stop()
    worker = await join()
    await begin_waiting(worker)
    waiting = await worker.start_waiting()
    await record_in(worker.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def refuse_writes(redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")


async def test_a_broker_that_takes_no_entries_is_reported_once_until_it_does(
    join: Join, redis: Redis
) -> None:
    worker = await join()
    await begin_waiting(worker)
    await refuse_writes(redis)
    for n in range(10):
        await record_in(worker.store, [envelope(f"k{n}")])
        await worker.work_until(lambda n=n: len(worker.done) == n + 1)  # type: ignore[misc]
        await worker.queue.wait(timedelta(milliseconds=20))
    (reported,) = worker.facts.of(QueueFailed, QueueRecovered)
    assert "maxmemory" in str(reported)
    await redis.config_set("maxmemory", "0")
    while not worker.facts.of(QueueRecovered):
        await record_in(worker.store, [envelope(f"k{len(worker.done)}")])
        await worker.finish(await worker.claims_within(SCAN_SECONDS))
    assert len(worker.facts.of(QueueFailed, QueueRecovered)) == 2


async def test_the_instance_that_records_is_woken_when_the_broker_takes_no_entries(
    join: Join, redis: Redis
) -> None:
    worker = await join()
    await begin_waiting(worker)
    await refuse_writes(redis)
    for n in range(3):  # also while the stream is not tried
        waiting = await worker.start_waiting()
        await record_in(worker.store, [envelope(f"k{n}")])
        await asyncio.wait_for(waiting, WAKE_SECONDS)
        await worker.finish(await worker.claims_within(SCAN_SECONDS))
    assert len(worker.facts.of(QueueFailed)) == 1


async def test_an_instance_that_may_not_write_wakes_for_events_of_others(
    join: Join, redis: Redis, own_valkey: ValkeyServer
) -> None:
    await redis.acl_setuser(
        "readonly", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-eval"]
    )
    ingester = await join()
    worker = await join(own_valkey.url().replace("redis://", "redis://readonly:any@"))
    await begin_waiting(worker)
    for n in range(5):
        await record_in(worker.store, [envelope(f"own-{n}")])
        await until(lambda: not worker.store.queue._unsent)  # type: ignore[attr-defined]
        await worker.finish(await worker.claims_within(SCAN_SECONDS))
    await until(lambda: worker.facts.of(QueueFailed))
    await begin_waiting(worker)
    waiting = await worker.start_waiting()
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, 1.0)
    assert len(worker.facts.of(QueueFailed, QueueRecovered)) == 1
