"""The stream may lose everything or repeat it: events run once, only later (F6, F11, F44)."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from ackbox.model import EventId
from ackbox.telemetry import QueueFailed
from support.databases.valkey import ValkeyServer
from support.faults.tcp_proxy import proxied
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.instances import (
    SCAN_SECONDS,
    WAKE_SECONDS,
    Join,
    assert_recovered,
    begin_waiting,
    names,
)
from support.time.polling import until

KEY = GROUP = "ackbox"
NO_DELAY = 0.8  # a call to the broker may take a second


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
    waiting = await worker.start_waiting()
    await record_in(ingester.store, [envelope("a")])
    await asyncio.wait_for(waiting, WAKE_SECONDS)
    assert await worker.keys() == ["a"]
    assert worker.facts.of(QueueFailed) == []


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
