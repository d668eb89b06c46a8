-- A lane's first event is found by comparing `(source, lane, ledger_id)` as one row value, so that only
-- the lane index can serve the query. With `lane = x ORDER BY ledger_id LIMIT 1` the planner may scan
-- the primary key instead, because it expects to meet an event of the lane early.

-- name: lock_lanes
-- Lock the rows of these lanes, in a fixed order, and create the rows that are missing. SQLite has
-- one writer and needs no rows to lock.
INSERT INTO {schema}.lanes (source, lane, last_locked_at)
SELECT source, lane, now() FROM unnest(:sources::text[], :lanes::text[]) AS held (source, lane)
ORDER BY source, lane
ON CONFLICT (source, lane) DO UPDATE SET last_locked_at = excluded.last_locked_at

-- name: promote
-- Make the oldest event of each lane claimable, unless an event of that lane is running.
WITH changed AS (
    UPDATE {schema}.live_events SET due_at = coalesce(retry_after, created_at)
    FROM {schema}.events
    WHERE live_events.ledger_id = ANY (ARRAY(
        SELECT (
            SELECT ledger_id FROM (
                SELECT source, lane, ledger_id FROM {schema}.live_events
                WHERE (source, lane, ledger_id) > (freed.source, freed.lane, 0)
                  AND lane IS NOT NULL AND NOT failed
                ORDER BY source, lane, ledger_id LIMIT 1) AS head
            WHERE head.source = freed.source AND head.lane = freed.lane
        ) FROM unnest(:sources::text[], :lanes::text[]) AS freed (source, lane)
        WHERE NOT EXISTS (
            SELECT 1 FROM {schema}.live_events AS running
            WHERE running.source = freed.source AND running.lane = freed.lane
              AND running.lane IS NOT NULL AND running.due_at IS NOT NULL
              AND running.lease_until IS NOT NULL)))
      AND events.ledger_id = live_events.ledger_id AND due_at IS NULL AND NOT parked
    RETURNING live_events.ledger_id
)
UPDATE {schema}.events SET claimable_at = coalesce(retry_after, created_at)
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM changed))

-- name: demote
-- Make the oldest event of each lane unclaimable: a replay may put an older event before it.
WITH changed AS (
    UPDATE {schema}.live_events SET due_at = NULL
    WHERE lease_until IS NULL AND ledger_id = ANY (ARRAY(
        SELECT (
            SELECT ledger_id FROM (
                SELECT source, lane, ledger_id FROM {schema}.live_events
                WHERE (source, lane, ledger_id) > (entered.source, entered.lane, 0)
                  AND lane IS NOT NULL AND NOT failed
                ORDER BY source, lane, ledger_id LIMIT 1) AS head
            WHERE head.source = entered.source AND head.lane = entered.lane
        ) FROM unnest(:sources::text[], :lanes::text[]) AS entered (source, lane)))
    RETURNING ledger_id
)
UPDATE {schema}.events SET claimable_at = NULL
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM changed))

-- name: drop_lanes
-- Delete the idle lanes among the next few lanes after this one, and return the last lane that was
-- read. Each pass reads every lane once, however many lanes are in use. If a lane was used
-- meanwhile, the locking read sees its new `last_locked_at` and keeps the lane. SQLite has no rows
-- for lanes.
WITH scanned AS MATERIALIZED (
    SELECT ctid AS tid, source, lane FROM {schema}.lanes
    WHERE (source, lane) > (:source, :lane) ORDER BY source, lane LIMIT :limit
), idle AS MATERIALIZED (
    SELECT ctid AS tid FROM {schema}.lanes
    WHERE ctid = ANY (ARRAY(SELECT tid FROM scanned))
      AND last_locked_at < now() - interval '1 hour' AND NOT EXISTS (
        SELECT 1 FROM {schema}.live_events
        WHERE live_events.source = lanes.source AND live_events.lane = lanes.lane AND NOT failed)
    FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM {schema}.lanes WHERE ctid = ANY (ARRAY(SELECT tid FROM idle))
)
SELECT source, lane FROM scanned ORDER BY source DESC, lane DESC LIMIT 1
