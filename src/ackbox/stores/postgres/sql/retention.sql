-- name: old_events_completed
-- Read the next rows. Return the last of them, whether any of them is old, and which of them may
-- get a tombstone.
WITH scanned AS MATERIALIZED (
    SELECT ledger_id, status, created_at, processed_at FROM {schema}.events
    WHERE ledger_id > :after ORDER BY ledger_id LIMIT :limit
)
SELECT max(ledger_id) AS last,
       bool_or(created_at < now() - :keep::interval OR created_at > now()) AS anything_old,
       array_agg(ledger_id ORDER BY ledger_id) FILTER (
           WHERE created_at < now() - :keep::interval AND status = 'completed'
             AND processed_at < now() - :keep_after_end::interval) AS rows
FROM scanned

-- name: old_events_failed
-- Return the same as `old_events_completed` for dead letters, by their own index, so that completed
-- events cost nothing.
WITH scanned AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.live_events
    WHERE failed AND ledger_id > :after ORDER BY ledger_id LIMIT :limit
)
SELECT max(ledger_id) AS last,
       bool_or(created_at < now() - :keep::interval OR created_at > now()) AS anything_old,
       array_agg(ledger_id ORDER BY ledger_id) FILTER (
           WHERE created_at < now() - :keep::interval
             AND processed_at < now() - :keep_after_end::interval) AS rows
FROM {schema}.events WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM scanned))

-- name: add_tombstones
-- Write tombstones for these events.
INSERT INTO {schema}.tombstones (
    source, idempotency_key, id, status, created_at, payload_sha256, tombstoned_at, ledger_id)
SELECT source, idempotency_key, id, status, created_at, payload_sha256, now(), ledger_id
FROM {schema}.events WHERE ledger_id = ANY (:rows::bigint[]) AND status = :status
ORDER BY source, idempotency_key
ON CONFLICT (source, idempotency_key) DO NOTHING
RETURNING 1

-- name: prunable
-- Lock and return tombstones that are old enough. Skip tombstones that another instance has locked
-- to prune their events.
SELECT source, idempotency_key, ledger_id FROM {schema}.tombstones
WHERE ledger_id IS NOT NULL AND tombstoned_at <= now() - :delete_delay::interval
ORDER BY tombstoned_at LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: prune
-- Delete finished events, unless they changed after their tombstones were written.
WITH dead_letters AS MATERIALIZED (
    -- Do not wait for locks: a replay that has locked one of these events may wait for its
    -- tombstone, which this transaction has locked.
    SELECT ledger_id FROM {schema}.live_events WHERE ledger_id = ANY (:rows::bigint[]) AND failed
    FOR UPDATE SKIP LOCKED
), free AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.events
    WHERE ledger_id = ANY (:rows::bigint[])
      AND (status = 'completed'
           OR status = 'failed' AND ledger_id = ANY (ARRAY(SELECT ledger_id FROM dead_letters)))
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
      AND status IN ('completed', 'failed')
      AND EXISTS (
        SELECT 1 FROM {schema}.tombstones
        WHERE tombstones.source = events.source
          AND tombstones.idempotency_key = events.idempotency_key
          AND tombstones.ledger_id = events.ledger_id AND tombstones.tombstoned_at >= events.updated_at)
    RETURNING ledger_id, status
), removed AS (
    DELETE FROM {schema}.live_events WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM gone))
), counted AS (
    INSERT INTO {schema}.status_counts (status, events) SELECT status, -count(*) FROM gone GROUP BY status
)
SELECT 1 FROM gone

-- name: close_tombstones
-- Mark the tombstones of deleted events as closed: their ledger_id becomes NULL.
UPDATE {schema}.tombstones SET ledger_id = NULL, tombstoned_at = now()
FROM unnest(:sources::text[], :keys::text[]) AS prunable (source, key)
WHERE tombstones.source = prunable.source AND idempotency_key = prunable.key
  AND NOT EXISTS (SELECT 1 FROM {schema}.events WHERE events.ledger_id = tombstones.ledger_id)
RETURNING 1

-- name: drop_tombstones
-- Delete the tombstones of these keys whose events still exist.
DELETE FROM {schema}.tombstones USING unnest(:sources::text[], :keys::text[]) AS given (source, key)
WHERE tombstones.ledger_id IS NOT NULL
  AND tombstones.source = given.source AND idempotency_key = given.key

-- name: tombstones_open
-- Return a row if there is a tombstone whose event still exists.
SELECT 1 FROM {schema}.tombstones WHERE ledger_id IS NOT NULL LIMIT 1

-- name: purge_tombstones
-- Delete closed tombstones that are old enough.
DELETE FROM {schema}.tombstones WHERE (source, idempotency_key) IN (
    SELECT source, idempotency_key FROM {schema}.tombstones
    WHERE ledger_id IS NULL AND tombstoned_at < now() - :keep_keys::interval
    ORDER BY tombstoned_at LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING 1

-- name: prune_fingerprints
-- Delete fingerprints that have expired.
DELETE FROM {schema}.fingerprints WHERE (source, payload_sha256) IN (
    SELECT source, payload_sha256 FROM {schema}.fingerprints
    WHERE recorded_at <= now() - :window::interval
    ORDER BY recorded_at LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING 1

-- name: prune_audit
-- Delete old entries of the audit log.
DELETE FROM {schema}.audit WHERE audit_id = ANY (ARRAY(
    SELECT audit_id FROM {schema}.audit WHERE at < now() - :keep::interval
    ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1
