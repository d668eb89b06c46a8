-- name: lanes_of
-- Return the lanes of these events, so that the caller can lock the lanes first.
SELECT DISTINCT source, lane FROM {schema}.events WHERE id = ANY (:ids::uuid[]) AND lane IS NOT NULL

-- name: lanes_of_parked
-- Return the lanes of the parked events that are unparked next, so that the caller can lock the
-- lanes first.
SELECT DISTINCT source, lane FROM (
    SELECT source, lane FROM {schema}.live_events
    WHERE parked AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit) AS parked
WHERE lane IS NOT NULL

-- name: replayable
-- Lock the live rows of these events and then the events, and return the events.
WITH live AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.live_events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM {schema}.events WHERE id = ANY (:ids::uuid[])))
    ORDER BY ledger_id FOR UPDATE
)
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome,
       coalesce(retry_after > now(), false) AS waits
FROM {schema}.events WHERE id = ANY (:ids::uuid[]) AND (SELECT count(*) FROM live) >= 0
ORDER BY ledger_id FOR UPDATE

-- name: replayable_parked
-- Lock and return parked events of one source and type, oldest first.
WITH live AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.live_events
    WHERE parked AND source = :source AND event_type = :event_type
    ORDER BY ledger_id LIMIT :limit FOR UPDATE SKIP LOCKED
)
SELECT ledger_id, id::text AS id, source, idempotency_key, lane, status, outcome, false AS waits
FROM {schema}.events
WHERE outcome = 'parked' AND status = 'pending'
  AND ledger_id = ANY (ARRAY(SELECT ledger_id FROM live))
ORDER BY ledger_id FOR UPDATE

-- name: replay_replayed
-- Give finished events a new set of attempts. An event in a lane waits for `promote`.
WITH counted AS (
    INSERT INTO {schema}.status_counts (status, events)
    SELECT status, -count(*) FROM {schema}.events WHERE ledger_id = ANY (:rows::bigint[]) GROUP BY status
    UNION ALL
    SELECT 'pending', count(*) FROM {schema}.events WHERE ledger_id = ANY (:rows::bigint[])
)
UPDATE {schema}.events SET
    status = 'pending', outcome = 'replayed', attempts = 0, unsettled = 0, retry_after = now(),
    claimable_at = CASE WHEN lane IS NULL THEN now() END, processed_at = NULL, replayed_at = now(),
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_expedited
-- Make events that wait for a retry due now.
UPDATE {schema}.events SET
    retry_after = now(), claimable_at = CASE WHEN lane IS NULL THEN now() END, replayed_at = now(),
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: replay_unparked
-- Make parked events claimable again.
UPDATE {schema}.events SET
    outcome = NULL, claimable_at = CASE WHEN lane IS NULL THEN coalesce(retry_after, created_at) END,
    updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: discard
-- Complete events as discarded, and delete their live rows.
WITH removed AS (
    DELETE FROM {schema}.live_events WHERE ledger_id = ANY (:rows::bigint[])
), counted AS (
    INSERT INTO {schema}.status_counts (status, events)
    SELECT status, -count(*) FROM {schema}.events WHERE ledger_id = ANY (:rows::bigint[]) GROUP BY status
    UNION ALL
    SELECT 'completed', count(*) FROM {schema}.events WHERE ledger_id = ANY (:rows::bigint[])
)
UPDATE {schema}.events SET
    status = 'completed', outcome = 'discarded', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processed_at = now(), updated_at = now()
WHERE ledger_id = ANY (:rows::bigint[])

-- name: refresh_live_events
-- Write the live rows of these events anew, from `events`.
SELECT {schema}.refresh_live_events(:rows::bigint[])

-- name: note_audit
-- Add entries to the audit log.
INSERT INTO {schema}.audit (at, actor, peer, action, event_id, detail)
SELECT now(), :actor, :peer, :action, event_id, detail
FROM unnest(:ids::uuid[], :details::text[]) AS entry (event_id, detail)
