"""`live_events` agrees with `events` after every operation."""

from datetime import timedelta

from ackbox.model import Outcome, Release, RetentionPolicy, Status
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import QueueWorker, dead, done, retry_later

LIVE_ROWS = """
SELECT ledger_id, source, event_type, lane, run, unsettled, suspect, lease_until, failed, parked,
       CASE WHEN lease_until IS NULL THEN due_at END, due_at IS NULL
FROM live_events ORDER BY ledger_id
"""
EXPECTED = """
SELECT ledger_id, source, event_type, lane, run, unsettled,
       unsettled + (status = 'processing')::int >= 2, lease_until, status = 'failed',
       status = 'pending' AND outcome IS NOT DISTINCT FROM 'parked',
       CASE WHEN status <> 'processing' THEN claimable_at END, claimable_at IS NULL
FROM events WHERE status <> 'completed' ORDER BY ledger_id
"""
POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))
STATUS_COUNTS = """
SELECT status, sum(events)::bigint FROM status_counts
GROUP BY status HAVING sum(events) <> 0 ORDER BY status
"""
COUNTS = "SELECT status, count(*) FROM events GROUP BY status ORDER BY 1"


async def assert_agrees(backend: PostgresBackend, rows: int) -> None:
    live_rows = await backend.fetch(LIVE_ROWS)
    assert live_rows == await backend.fetch(EXPECTED)
    assert len(live_rows) == rows
    assert await backend.fetch(STATUS_COUNTS) == await backend.fetch(COUNTS)


async def test_live_events_follow_every_operation(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(
        backend.store, [*envelopes(6), envelope("a", lane="l"), envelope("b", lane="l")]
    )
    await assert_agrees(backend, 8)
    claims = await me.claim()
    await assert_agrees(backend, 8)
    ends: list[Outcome] = [done(), retry_later(), dead(), Release(), Release(parked=True), done()]
    for claim, end in zip(claims, ends, strict=False):
        await me.settle(claim, end)
    await assert_agrees(backend, 6)
    ids = [claim.id for claim in claims]
    await backend.store.replay(ids, actor="tester", completed=True)
    await assert_agrees(backend, 8)
    await backend.store.discard(ids, actor="tester")
    await assert_agrees(backend, 2)  # the running event and the next event of its lane


async def test_a_full_scan_finds_each_event_once(backend: PostgresBackend) -> None:  # F37
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(3))
    assert len(await me.claim(1)) == 1
    assert len(await me.claim(2)) == 2
    await assert_agrees(backend, 3)


async def test_a_released_event_is_claimed_before_the_rest_of_a_backlog(
    backend: PostgresBackend,
) -> None:  # F37
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(6))
    first, _ = await me.claim(2)
    await me.settle(first, Release())
    assert (await me.claim(2))[0].id == first.id


async def test_live_events_mark_suspects(backend: PostgresBackend) -> None:  # S9
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(1))
    for end in (Release(), Release(parked=True), retry_later(), dead()):
        for _ in range(2):
            await me.claim_any()
            await assert_agrees(backend, 1)
            backend.clock.advance(seconds=31)
        claim = await me.claim_any()
        await assert_agrees(backend, 1)
        await me.settle(claim, end)
        await assert_agrees(backend, 1)
        await backend.store.replay([claim.id], actor="tester")
        await assert_agrees(backend, 1)


async def test_a_pruned_event_has_no_live_row(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(3))
    ends: list[Outcome] = [done(), dead()]
    for claim, end in zip(await me.claim(), ends, strict=False):
        await me.settle(claim, end)
    backend.clock.now += timedelta(days=40)
    assert (await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == 1
    assert (await backend.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == 1
    backend.clock.now += timedelta(hours=1)
    assert (await backend.store.prune(POLICY)).rows == 2
    await assert_agrees(backend, 1)


async def test_live_events_can_be_rebuilt(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, envelopes(4))
    (claim,) = await me.claim(1)
    await me.settle(claim, dead())
    await me.claim(1)
    await backend.rebuild_derived()
    await assert_agrees(backend, 4)
