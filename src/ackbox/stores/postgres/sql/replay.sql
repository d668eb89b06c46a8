-- name: lanes_of
SELECT DISTINCT source, lane FROM events WHERE id = ANY (:ids::uuid[]) AND lane IS NOT NULL

-- name: lanes_of_held
SELECT DISTINCT source, lane FROM (
    SELECT source, lane FROM agenda
    WHERE held AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit) AS held
WHERE lane IS NOT NULL

-- name: replayable
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome,
       coalesce(retry_after > now(), false) AS waits
FROM events WHERE id = ANY (:ids::uuid[])
ORDER BY ledger_id FOR UPDATE

-- name: replayable_held
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome, false AS waits
FROM events
WHERE outcome = 'held' AND status = 'pending' AND ledger_id = ANY (ARRAY(
    SELECT ledger_id FROM agenda
    WHERE held AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit))
ORDER BY ledger_id FOR UPDATE SKIP LOCKED

-- name: replay_replayed
UPDATE events SET
    status = 'pending', outcome = 'replayed', attempts = 0, unsettled = 0, retry_after = now(),
    claimable_at = CASE WHEN lane IS NULL THEN now() END, processed_at = NULL, updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_hurried
UPDATE events SET
    retry_after = now(), claimable_at = CASE WHEN lane IS NULL THEN now() END, updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_put_back
UPDATE events SET
    outcome = NULL, claimable_at = CASE WHEN lane IS NULL THEN coalesce(retry_after, created_at) END,
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: note_audit
INSERT INTO audit (at, actor, action, event_id, detail)
SELECT now(), :actor, :action, event_id, detail
FROM unnest(:ids::uuid[], :details::text[]) AS entry (event_id, detail)
