-- name: lanes_of
SELECT DISTINCT source, lane FROM events WHERE id = ANY (:ids::uuid[]) AND lane IS NOT NULL

-- name: lanes_of_parked
SELECT DISTINCT source, lane FROM (
    SELECT source, lane FROM live_events
    WHERE parked AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit) AS parked
WHERE lane IS NOT NULL

-- name: replayable
WITH places AS MATERIALIZED (
    SELECT ledger_id FROM live_events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM events WHERE id = ANY (:ids::uuid[])))
    ORDER BY ledger_id FOR UPDATE
)
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome,
       coalesce(retry_after > now(), false) AS waits
FROM events WHERE id = ANY (:ids::uuid[]) AND (SELECT count(*) FROM places) >= 0
ORDER BY ledger_id FOR UPDATE

-- name: replayable_parked
WITH places AS MATERIALIZED (
    SELECT ledger_id FROM live_events
    WHERE parked AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit FOR UPDATE SKIP LOCKED
)
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome, false AS waits
FROM events
WHERE outcome = 'parked' AND status = 'pending'
  AND ledger_id = ANY (ARRAY(SELECT ledger_id FROM places))
ORDER BY ledger_id FOR UPDATE

-- name: replay_replayed
WITH counted AS (
    INSERT INTO status_counts (status, events)
    SELECT status, -count(*) FROM events WHERE ledger_id = ANY (:rows::bigint[]) GROUP BY status
    UNION ALL
    SELECT 'pending', count(*) FROM events WHERE ledger_id = ANY (:rows::bigint[])
)
UPDATE events SET
    status = 'pending', outcome = 'replayed', attempts = 0, unsettled = 0, retry_after = now(),
    claimable_at = CASE WHEN lane IS NULL THEN now() END, processed_at = NULL, replayed_at = now(),
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_expedited
UPDATE events SET
    retry_after = now(), claimable_at = CASE WHEN lane IS NULL THEN now() END, replayed_at = now(),
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_unparked
UPDATE events SET
    outcome = NULL, claimable_at = CASE WHEN lane IS NULL THEN coalesce(retry_after, created_at) END,
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: discard
WITH placed AS (
    DELETE FROM live_events WHERE ledger_id = ANY (:rows::bigint[])
), counted AS (
    INSERT INTO status_counts (status, events)
    SELECT status, -count(*) FROM events WHERE ledger_id = ANY (:rows::bigint[]) GROUP BY status
    UNION ALL
    SELECT 'completed', count(*) FROM events WHERE ledger_id = ANY (:rows::bigint[])
)
UPDATE events SET
    status = 'completed', outcome = 'discarded', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processed_at = now(), updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: follow
SELECT ackbox_follow(:rows::bigint[])

-- name: note_audit
INSERT INTO audit (at, actor, peer, action, event_id, detail)
SELECT now(), :actor, :peer, :action, event_id, detail
FROM unnest(:ids::uuid[], :details::text[]) AS entry (event_id, detail)
