"""Locks of one instance must not block the other instances."""

import asyncio
from datetime import timedelta

import pytest

from ackbox.errors import AckboxError, ConnectionLost, Unavailable
from ackbox.model import Outcome, RetentionPolicy, Settlement, Status
from ackbox.stores.postgres.write import record, settlement
from ackbox.stores.postgres.write.lanes import lock_lanes
from ackbox.stores.postgres.write.settlement import lock_claims
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import LEASE, QueueWorker, dead, done, retry_later

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))
LOCKED = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
)
TERMINATE_WAITING = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def test_an_idle_transaction_is_ended(backend: PostgresBackend) -> None:
    """An instance may freeze between two statements."""

    async def freeze() -> None:
        async with backend.store.database.transaction() as frozen:
            await lock_lanes(frozen, {("webhooks", "l")})
            async with asyncio.timeout(10):
                await record_in(backend.store, [envelope("a", lane="l")])

    with pytest.raises(Unavailable):
        await freeze()
    assert len(await backend.rows()) == 1


@pytest.mark.parametrize(("lane", "error"), [(None, ConnectionLost), ("l", Unavailable)])
async def test_a_record_that_loses_its_connection_says_whether_it_may_have_committed(
    backend: PostgresBackend, lane: str | None, error: type[Exception]
) -> None:
    """Without lanes, the statement that waits is a transaction by itself."""
    async with backend.store.database.transaction() as session:
        await session.execute_raw("LOCK TABLE ackbox.events, ackbox.lanes IN EXCLUSIVE MODE")
        recording = asyncio.ensure_future(record_in(backend.store, [envelope("a", lane=lane)]))
        while not recording.done():
            # Within a transaction, the activity would stay as it was at the first look.
            await session.connection.fetchval("SELECT pg_stat_clear_snapshot()")
            await session.connection.fetchval(TERMINATE_WAITING)
        with pytest.raises(AckboxError) as caught:
            await recording
    assert type(caught.value) is error


async def test_a_renewal_does_not_wait_for_a_settlement(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(3))
    claims = await me.claim()
    async with backend.store.database.transaction() as settlement:
        await lock_claims(settlement, [Settlement(claims[0], done())])
        backend.clock.advance(seconds=20)
        async with asyncio.timeout(1):
            kept = await me.queue.renew(claims, lease=LEASE)
    assert kept == {claim.id for claim in claims}
    backend.clock.advance(seconds=20)
    assert await QueueWorker(backend.store.queue).keys() == ["key-0"]


async def test_repeats_do_not_deadlock_with_a_settlement(backend: PostgresBackend) -> None:
    """The settlement may hold the lock on one repeated event and wait for another."""
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(3))
    claims = await me.claim()
    async with backend.store.database.transaction() as session:
        await settlement.apply(session, [Settlement(claims[2], done())])
        sent = [envelope("key-0"), envelope("key-2")]
        repeating = asyncio.create_task(record._count_repeats(backend.store.database, sent))
        await waiting_for_a_lock(backend)
        await settlement.apply(session, [Settlement(claims[0], retry_later())])
    await asyncio.wait_for(repeating, 5)
    counts = {row["idempotency_key"]: row["ingest_count"] for row in await backend.rows()}
    assert counts == {"key-0": 2, "key-1": 1, "key-2": 2}
    assert await backend.fetch(DEADLOCKS) == [(0,)]


async def test_a_settlement_of_several_outcomes_does_not_deadlock_with_a_replay(
    backend: PostgresBackend,
) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(3))
    claims = await me.claim()
    ends: list[Outcome] = [retry_later(), dead(), done()]
    async with backend.store.database.transaction() as session:
        await lock_claims(session, [Settlement(claims[0], done())])
        pairs = zip(claims, ends, strict=True)
        settling = asyncio.create_task(me.queue.settle([Settlement(*pair) for pair in pairs]))
        await waiting_for_a_lock(backend)
        await lock_claims(session, [Settlement(claims[2], done())])
    assert len(await asyncio.wait_for(settling, 5)) == 3
    assert await backend.fetch(DEADLOCKS) == [(0,)]


async def test_an_event_that_is_being_replayed_is_not_pruned(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(2))
    ends: list[Outcome] = [done(), dead()]
    for claim, end in zip(await me.claim(), ends, strict=True):
        await me.settle(claim, end)
    backend.clock.advance(days=40)
    assert (await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == 1
    assert (await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == 1
    backend.clock.advance(hours=1)
    ids = [row["id"] for row in await backend.rows()]
    async with backend.store.database.transaction() as session:
        await session.fetch("replayable", ids=ids)
        async with asyncio.timeout(1):
            assert (await backend.store.prune(POLICY)).rows == 0
    assert len(await backend.rows()) == 2


async def waiting_for_a_lock(backend: PostgresBackend) -> None:
    async with asyncio.timeout(5):
        while await backend.fetch(LOCKED) == [(0,)]:
            pass
