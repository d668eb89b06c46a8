"""A Redis stream carries new events to the instances."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from ackbox.stores.postgres.write.queue import PostgresQueue
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.instances import (
    FOREVER,
    SCAN_SECONDS,
    WAKE_SECONDS,
    Join,
    begin_waiting,
    names,
)
from support.time.polling import until

KEY = GROUP = "ackbox"


async def test_another_instance_wakes_for_a_new_event_at_once(join: Join) -> None:
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    waiting = await worker.start_waiting()
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def test_one_event_wakes_one_waiting_instance(join: Join) -> None:
    ingester, *workers = [await join() for _ in range(4)]
    for worker in workers:
        await begin_waiting(worker)
    waiting = [await worker.start_waiting() for worker in workers]
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait(waiting, timeout=WAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    woken, idle = await asyncio.wait(waiting, timeout=0.1)
    assert (len(woken), len(idle)) == (1, 2)
    for wait in idle:
        wait.cancel()
    await asyncio.wait(waiting)


async def test_a_burst_is_shared_by_waiting_instances(join: Join) -> None:
    ingester, *workers = [await join() for _ in range(3)]
    for worker in workers:
        await begin_waiting(worker)
    sent = envelopes(200)

    def all_done() -> bool:
        return sum(len(worker.done) for worker in workers) == 200

    working = [asyncio.ensure_future(worker.work_until(all_done)) for worker in workers]
    await until(lambda: all(worker.is_listening() for worker in workers))
    await record_in(ingester.store, sent)
    await asyncio.gather(*working)
    assert sorted([*workers[0].done, *workers[1].done]) == names(sent)
    assert all(len(worker.done) >= 20 for worker in workers)


async def test_an_instance_that_records_is_woken_only_by_the_stream(
    join: Join, redis: Redis
) -> None:
    ingester = await join()
    await begin_waiting(ingester)
    await redis.xgroup_create(KEY, "unread", mkstream=True)
    await redis.rename(KEY, "elsewhere")
    await record_in(ingester.store, [envelope("a")])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(PostgresQueue.wait(ingester.store.queue, FOREVER), 0.1)


async def test_nothing_is_left_pending_in_the_stream(join: Join, redis: Redis) -> None:  # F44
    worker = await join()
    await record_in(worker.store, envelopes(5))
    await worker.work_until(lambda: len(worker.done) == 5)
    pending: dict[str, Any] = await redis.xpending(KEY, GROUP)
    assert pending["pending"] == 0


async def test_events_published_before_the_close_are_sent(join: Join, redis: Redis) -> None:
    ingester = await join()
    await record_in(ingester.store, envelopes(5))
    await ingester.store.close()
    assert await redis.xlen(KEY) == 5
