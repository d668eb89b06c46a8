"""The live_events is what `events` says, whatever was done."""

from datetime import timedelta

from ackbox.model import Outcome, Release, RetentionPolicy
from support.events import envelope, envelopes
from support.postgres_backend import PostgresBackend
from support.queue_worker import QueueWorker, dead, done, retry_later

LIVE_ROWS = """
SELECT ledger_id, source, event_type, lane, run, unsettled, suspect, lease_until, failed, parked,
       CASE WHEN lease_until IS NULL THEN due_at END, due_at IS NULL
FROM live_events ORDER BY ledger_id
"""
MEANT = """
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


async def assert_true(backend: PostgresBackend, rows: int) -> None:
    live_events = await backend.ask(LIVE_ROWS)
    assert live_events == await backend.ask(MEANT)
    assert len(live_events) == rows
    assert await backend.ask(STATUS_COUNTS) == await backend.ask(COUNTS)


async def test_it_follows_every_step(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await backend.store.record([*envelopes(6), envelope("a", lane="l"), envelope("b", lane="l")])
    await assert_true(backend, 8)
    claims = await me.claim()
    await assert_true(backend, 8)
    ends: list[Outcome] = [done(), retry_later(), dead(), Release(), Release(parked=True), done()]
    for claim, end in zip(claims, ends, strict=False):
        await me.settle(claim, end)
    await assert_true(backend, 6)
    ids = [claim.id for claim in claims]
    await backend.store.replay(ids, actor="tester", completed=True)
    await assert_true(backend, 8)
    await backend.store.discard(ids, actor="tester")
    await assert_true(backend, 2)  # one that runs, and one behind it


async def test_it_knows_suspects(backend: PostgresBackend) -> None:  # S9
    me = QueueWorker(backend.store.queue)
    await backend.store.record(envelopes(1))
    for end in (Release(), Release(parked=True), retry_later(), dead()):
        for _ in range(2):
            await me.claim_any()
            await assert_true(backend, 1)
            backend.clock.advance(seconds=31)
        claim = await me.claim_any()
        await assert_true(backend, 1)
        await me.settle(claim, end)
        await assert_true(backend, 1)
        await backend.store.replay([claim.id], actor="tester")
        await assert_true(backend, 1)


async def test_what_was_pruned_has_no_place_in_it(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await backend.store.record(envelopes(3))
    ends: list[Outcome] = [done(), dead()]
    for claim, end in zip(await me.claim(), ends, strict=False):
        await me.settle(claim, end)
    backend.clock.now += timedelta(days=40)
    assert (await backend.store.add_tombstones(POLICY, after=0)).rows == 1
    assert (await backend.store.add_dead_letter_tombstones(POLICY, after=0)).rows == 1
    backend.clock.now += timedelta(hours=1)
    assert (await backend.store.prune(POLICY)).rows == 2
    await assert_true(backend, 1)


async def test_it_can_be_made_anew(backend: PostgresBackend) -> None:
    me = QueueWorker(backend.store.queue)
    await backend.store.record(envelopes(4))
    (claim,) = await me.claim(1)
    await me.settle(claim, dead())
    await me.claim(1)
    await backend.follow()
    await assert_true(backend, 4)
