-- A place in an index is asked for by all of its columns at once: of `lane = x ORDER BY ledger_id`
-- PostgreSQL may think that the table in the order of its numbers has one soon.

-- name: lock_lanes
INSERT INTO {schema}.lanes (source, lane, held_at)
SELECT source, lane, now() FROM unnest(:sources::text[], :lanes::text[]) AS held (source, lane)
ORDER BY source, lane
ON CONFLICT (source, lane) DO UPDATE SET held_at = excluded.held_at

-- name: promote
WITH placed AS (
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
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM placed))

-- name: demote
WITH placed AS (
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
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM placed))

-- name: drop_lanes
-- Delete the idle lanes among the next few after this one, and return the last that was looked at:
-- each pass reads every lane once, however many are in use. A lane that was touched meanwhile has a
-- new `held_at`, which the lock sees.
WITH walked AS MATERIALIZED (
    SELECT ctid AS place, source, lane FROM {schema}.lanes
    WHERE (source, lane) > (:source, :lane) ORDER BY source, lane LIMIT :limit
), idle AS MATERIALIZED (
    SELECT ctid AS place FROM {schema}.lanes
    WHERE ctid = ANY (ARRAY(SELECT place FROM walked))
      AND held_at < now() - interval '1 hour' AND NOT EXISTS (
        SELECT 1 FROM {schema}.live_events
        WHERE live_events.source = lanes.source AND live_events.lane = lanes.lane AND NOT failed)
    FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM {schema}.lanes WHERE ctid = ANY (ARRAY(SELECT place FROM idle))
)
SELECT source, lane FROM walked ORDER BY source DESC, lane DESC LIMIT 1
