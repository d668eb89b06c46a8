-- A place in an index is asked for by all of its columns at once: of `lane = x ORDER BY ledger_id`
-- PostgreSQL may think that the table in the order of its numbers has one soon.

-- name: hold_lanes
INSERT INTO lanes (source, lane, held_at)
SELECT source, lane, now() FROM unnest(:sources::text[], :lanes::text[]) AS held (source, lane)
ORDER BY source, lane
ON CONFLICT (source, lane) DO UPDATE SET held_at = excluded.held_at

-- name: promote
UPDATE events SET claimable_at = coalesce(retry_after, created_at)
WHERE status = 'pending' AND claimable_at IS NULL AND ledger_id = ANY (ARRAY(
    SELECT (
        SELECT ledger_id FROM (
            SELECT source, lane, ledger_id FROM agenda
            WHERE (source, lane, ledger_id) > (freed.source, freed.lane, 0)
              AND lane IS NOT NULL AND status IN ('pending', 'processing') AND NOT held
            ORDER BY source, lane, ledger_id LIMIT 1) AS head
        WHERE head.source = freed.source AND head.lane = freed.lane
    ) FROM unnest(:sources::text[], :lanes::text[]) AS freed (source, lane)
    WHERE NOT EXISTS (
        SELECT 1 FROM agenda AS running
        WHERE running.source = freed.source AND running.lane = freed.lane
          AND running.lane IS NOT NULL AND running.status = 'processing')
))

-- name: demote
UPDATE events SET claimable_at = NULL
WHERE status = 'pending' AND ledger_id = ANY (ARRAY(
    SELECT (
        SELECT ledger_id FROM (
            SELECT source, lane, ledger_id FROM agenda
            WHERE (source, lane, ledger_id) > (entered.source, entered.lane, 0)
              AND lane IS NOT NULL AND status IN ('pending', 'processing') AND NOT held
            ORDER BY source, lane, ledger_id LIMIT 1) AS head
        WHERE head.source = entered.source AND head.lane = entered.lane
    ) FROM unnest(:sources::text[], :lanes::text[]) AS entered (source, lane)))

-- name: drop_lanes
DELETE FROM lanes WHERE (source, lane) IN (
    SELECT source, lane FROM lanes
    WHERE held_at < now() - interval '1 hour' AND NOT EXISTS (
        SELECT 1 FROM agenda
        WHERE agenda.source = lanes.source AND agenda.lane = lanes.lane
          AND status IN ('pending', 'processing'))
    LIMIT :limit FOR UPDATE SKIP LOCKED)
