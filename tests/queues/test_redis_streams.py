"""The stream may lose everything, repeat it, or be unavailable: events run once, only later."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from ackbox.model import Envelope, EventId
from ackbox.telemetry import QueueFailed, QueueRecovered
from support.events import envelope, envelopes, record_in
from support.instances import Instance, Join
from support.tcp_proxy import proxied
from support.valkey import ValkeyServer

KEY = GROUP = "ackbox"
FOREVER = timedelta(minutes=5)
WAKE_SECONDS = 5.0  # a worker that is not woken waits much longer
SCAN_SECONDS = 5.0  # the database is queried once a second
NO_DELAY = 0.8  # a call to the broker may take a second


def names(sent: list[Envelope]) -> list[str]:
    return sorted(event.idempotency_key for event in sent)


async def until(check: Callable[[], Any], *, within: float = 10.0) -> None:
    end = monotonic() + within
    while not check():
        assert monotonic() < end
        await asyncio.sleep(0.01)


async def begin_waiting(instance: Instance) -> None:
    """Let the instance see an empty database and listen."""
    assert await instance.claim() == []
    await instance.queue.wait(timedelta(milliseconds=20))


# --- without faults


async def test_another_instance_wakes_for_a_new_event_at_once(join: Join) -> None:
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def test_one_event_wakes_one_waiting_instance(join: Join) -> None:
    ingester, *workers = [await join() for _ in range(4)]
    for worker in workers:
        await begin_waiting(worker)
    waiting = [asyncio.ensure_future(w.queue.wait(FOREVER)) for w in workers]
    await asyncio.sleep(0.05)
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
    await asyncio.sleep(0.05)
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
        await asyncio.wait_for(ingester.store._own_queue.wait(FOREVER), 0.1)


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


# --- F6: the event is not published


async def test_an_event_whose_instance_died_before_publishing_is_found(join: Join) -> None:  # F6
    dying, worker = await join(None), await join()
    await begin_waiting(worker)
    await record_in(dying.store, [envelope("a")])
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def test_a_broker_that_refuses_delays_no_receipt_and_loses_no_event(
    join: Join, own_valkey: ValkeyServer
) -> None:  # F6
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    own_valkey.kill()
    started = monotonic()
    await record_in(ingester.store, [envelope("a")])
    receipts = await record_in(ingester.store, [envelope("a")])  # the sender tries again
    assert monotonic() - started < NO_DELAY
    assert [str(receipt.kind) for receipt in receipts] == ["duplicate"]
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def test_a_broker_that_hangs_delays_no_receipt_and_no_claim_by_more_than_a_second(
    join: Join, own_valkey: ValkeyServer
) -> None:
    with proxied(own_valkey.port) as proxy:
        worker = await join(f"redis://127.0.0.1:{proxy.port}/0")
        await begin_waiting(worker)
        proxy.hang()
        started = monotonic()
        await record_in(worker.store, [envelope("a")])
        assert monotonic() - started < NO_DELAY
        assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == [
            "a"
        ]
        await until(lambda: worker.facts.of(QueueFailed))
        proxy.heal()
        await assert_recovered(worker)


async def assert_recovered(worker: Instance) -> None:
    while not worker.facts.of(QueueRecovered):
        await worker.claim()
        await worker.queue.wait(timedelta(milliseconds=50))
    await begin_waiting(worker)
    waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    await record_in(worker.store, [envelope("again")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == [
        "again"
    ]


# --- F11: the broker lost everything


@pytest.mark.parametrize("loss", ["flush", "restart"])
async def test_events_that_a_broker_lost_are_found_in_the_database(
    join: Join, redis: Redis, own_valkey: ValkeyServer, loss: str
) -> None:  # F11
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    sent = envelopes(50)
    await record_in(ingester.store, sent)
    if loss == "flush":
        await redis.flushall()
    else:
        own_valkey.kill()
        own_valkey.start()
    await worker.work_until(lambda: len(worker.done) == 50)
    assert sorted(worker.done) == names(sent)


async def test_a_lost_group_is_made_again(join: Join, redis: Redis) -> None:  # F11
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    await redis.flushall()
    await begin_waiting(worker)
    waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert await worker.keys() == ["a"]
    assert worker.facts.of(QueueFailed) == []


# --- F44: entries trimmed, repeated, poisoned, or lost with their reader


async def test_trimmed_entries_are_found_in_the_database(join: Join, redis: Redis) -> None:  # F44
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    sent = envelopes(50)
    await record_in(ingester.store, sent)
    await redis.xtrim(KEY, maxlen=3, approximate=False)
    await worker.work_until(lambda: len(worker.done) == 50)
    assert sorted(worker.done) == names(sent)


async def test_an_entry_lost_with_its_reader_is_found_by_another(
    join: Join, redis: Redis
) -> None:  # F44
    ingester, worker = await join(), await join()
    await begin_waiting(worker)
    await record_in(ingester.store, [envelope("a")])
    await until(lambda: not ingester.store.queue._unsent)  # type: ignore[attr-defined]
    await redis.xreadgroup(GROUP, "dead", {KEY: ">"}, noack=True)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


async def test_an_event_that_the_stream_repeats_is_not_run_again(
    join: Join, redis: Redis
) -> None:  # F44
    worker = await join()
    sent = envelopes(50)
    await record_in(worker.store, sent)
    await worker.work_until(lambda: len(worker.done) == 50)
    await redis.xgroup_setid(KEY, GROUP, "0")
    for _ in range(5):
        assert await worker.claim(20) == []
    assert sorted(worker.done) == names(sent)


async def test_entries_of_other_clients_do_no_harm(join: Join, redis: Redis) -> None:  # F44
    worker = await join()
    await begin_waiting(worker)
    for field in ("no id", "\0", "", "x" * 9000, str(EventId("0" * 32)), b"\xff\xfe"):
        await redis.xadd(KEY, {field: "?"})
    await record_in(worker.store, [envelope("a")])
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]
    assert worker.facts.of(QueueFailed) == []


async def test_nothing_runs_twice_while_the_stream_is_lost_and_repeated(
    join: Join, redis: Redis
) -> None:  # P3
    ingester, *workers = [await join() for _ in range(4)]
    sent = envelopes(600)

    def all_done() -> bool:
        return sum(len(worker.done) for worker in workers) >= 600

    async def disturb() -> None:
        while not all_done():
            await redis.flushall()
            await asyncio.sleep(0.02)
            if await redis.exists(KEY):
                await redis.xgroup_create(KEY, "another")
                for group in await redis.xinfo_groups(KEY):
                    await redis.xgroup_setid(KEY, group["name"], "0")
            await asyncio.sleep(0.02)

    async def feed() -> None:
        for start in range(0, 600, 20):
            await record_in(ingester.store, sent[start : start + 20])
            await asyncio.sleep(0.005)

    working = [worker.work_until(all_done, within=30) for worker in workers]
    await asyncio.gather(feed(), disturb(), *working)
    assert sorted(key for worker in workers for key in worker.done) == names(sent)


# --- an outage and its end


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
    waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    await record_in(worker.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert [event.idempotency_key for event in await worker.claims_within(SCAN_SECONDS)] == ["a"]


# --- a broker that can be read, and not written


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
        waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
        await asyncio.sleep(0.05)
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
    waiting = asyncio.ensure_future(worker.queue.wait(FOREVER))
    await asyncio.sleep(0.05)
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, 1.0)
    assert len(worker.facts.of(QueueFailed, QueueRecovered)) == 1
