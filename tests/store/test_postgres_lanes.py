"""The rows that lock lanes, and the collation of compared columns (S14, S23)."""

from datetime import timedelta

from ackbox.model import RetentionPolicy
from support.ledgers.events import envelope, record_in
from support.ledgers.postgres_backend import PostgresBackend
from support.workers.queue_worker import QueueWorker, done

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))
IDLE = """
INSERT INTO lanes (source, lane, last_locked_at)
SELECT 'webhooks', 'idle-' || n, now() - interval '2 hours' FROM generate_series(1, 3500) AS n
"""
COLLATIONS = """
SELECT table_name || '.' || column_name, collation_name FROM information_schema.columns
WHERE table_schema = 'ackbox' AND data_type = 'text' AND table_name <> 'mine'
  AND column_name IN ('source', 'idempotency_key', 'event_type', 'lane', 'status', 'outcome',
                      'processor_id', 'error_code', 'identity', 'current_table', 'last_key')
"""
COLUMNS = {
    *("events.source", "events.idempotency_key", "events.event_type", "events.lane"),
    *(
        "live_events.source",
        "live_events.event_type",
        "live_events.lane",
        "lanes.source",
        "lanes.lane",
    ),
    *("tombstones.source", "tombstones.idempotency_key", "cursors.source"),
    *("events.status", "events.outcome", "events.processor_id", "events.error_code"),
    *("status_counts.status", "tombstones.status"),
    *("promotion.identity", "promotion.current_table", "promotion.last_key"),
    *("fingerprints.source", "fingerprints.idempotency_key"),
    *("quarantine.source", "quarantine_usage.source"),
    *(
        "submissions.source",
        "submissions.idempotency_key",
        "submissions.event_type",
        "submissions.lane",
    ),
}


async def lanes(backend: PostgresBackend) -> list[str]:
    return [row[0] for row in await backend.fetch("SELECT lane FROM lanes ORDER BY lane")]


async def test_a_pass_drops_every_idle_lane_and_no_other(backend: PostgresBackend) -> None:  # S14
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope("a", lane="in-use"), envelope("b", lane="a-finished")])
    await me.settle_all(await me.claim(), done())
    await record_in(backend.store, [envelope("c", lane="in-use")])
    backend.clock.advance(hours=2)
    await record_in(backend.store, [envelope("d", lane="fresh")])
    await backend.fetch(IDLE)
    assert (await backend.store.purge(POLICY)).tombstones == 0
    assert await lanes(backend) == ["fresh", "in-use"]


async def test_compared_columns_sort_by_their_bytes(backend: PostgresBackend) -> None:
    collations = dict(await backend.fetch(COLLATIONS))  # S23
    assert collations == dict.fromkeys(COLUMNS, "C")


async def test_keys_that_a_language_sorts_as_equal_stay_distinct(
    backend: PostgresBackend,
) -> None:  # S23
    keys = ["coop", "co-op", "Coop", "ÇOOP", "çoop", "co\u00adop", "\uff43oop"]
    await record_in(backend.store, [envelope(key, lane=key) for key in keys])
    receipts = await record_in(backend.store, [envelope(key, lane=key) for key in reversed(keys)])
    assert {receipt.kind for receipt in receipts} == {"duplicate"}
    assert sorted(await QueueWorker(backend.store.queue).keys()) == sorted(keys)
