-- name: old_events_completed
-- Read the next rows. Return the last of them, whether any of them is old, and which of them may
-- get a tombstone.
SELECT json_array(
    max(ledger_id),
    max(created_at < :created_before OR created_at > :now),
    json_group_array(ledger_id) FILTER (
        WHERE created_at < :created_before AND status = 'completed'
          AND processed_at < :finished_before))
FROM (
    SELECT ledger_id, status, created_at, processed_at FROM events
    WHERE ledger_id > :after ORDER BY ledger_id LIMIT :limit)

-- name: old_events_failed
-- Return the same as `old_events_completed` for dead letters, by their own index, so that completed
-- events cost nothing. PostgreSQL reads `live_events`.
SELECT json_array(
    max(ledger_id),
    max(created_at < :created_before OR created_at > :now),
    json_group_array(ledger_id) FILTER (
        WHERE created_at < :created_before AND processed_at < :finished_before))
FROM (
    SELECT ledger_id, created_at, processed_at FROM events INDEXED BY events_failed
    WHERE status = 'failed' AND ledger_id > :after ORDER BY ledger_id LIMIT :limit)

-- name: add_tombstones
-- Write tombstones for these events. WHERE true separates the join from ON CONFLICT for the parser.
INSERT INTO tombstones (
    source, idempotency_key, id, status, created_at, payload_sha256, tombstoned_at, ledger_id)
SELECT source, idempotency_key, events.id, status, created_at, payload_sha256, :now, ledger_id
FROM json_each(:rows) AS old JOIN events ON ledger_id = old.value
WHERE true
ON CONFLICT (source, idempotency_key) DO NOTHING

-- name: prunable
-- Return the events whose tombstones are old enough, with the size of their payloads.
-- PostgreSQL locks the tombstones, and skips tombstones that another process has locked.
SELECT json_group_array(json_array(source, idempotency_key, ledger_id, bytes)) FROM (
    SELECT tombstones.source, tombstones.idempotency_key, tombstones.ledger_id,
           coalesce(length(events.payload), 0) AS bytes
    FROM tombstones LEFT JOIN events ON events.ledger_id = tombstones.ledger_id
    WHERE tombstones.ledger_id IS NOT NULL AND tombstones.tombstoned_at <= :tombstoned_before
    ORDER BY tombstones.tombstoned_at LIMIT :limit)

-- name: prune
-- Delete finished events, unless they changed after their tombstones were written.
DELETE FROM events
WHERE ledger_id IN (SELECT prunable.value ->> 2 FROM json_each(:prunable) AS prunable)
  AND status IN ('completed', 'failed')
  AND EXISTS (
    SELECT 1 FROM tombstones
    WHERE tombstones.source = events.source
      AND tombstones.idempotency_key = events.idempotency_key
      AND tombstones.ledger_id = events.ledger_id AND tombstones.tombstoned_at >= events.updated_at)

-- name: close_tombstones
-- Mark the tombstones of deleted events as closed: their ledger_id becomes NULL.
UPDATE tombstones SET ledger_id = NULL, tombstoned_at = :now
FROM json_each(:prunable) AS prunable
WHERE source = prunable.value ->> 0 AND idempotency_key = prunable.value ->> 1
  AND NOT EXISTS (SELECT 1 FROM events WHERE events.ledger_id = tombstones.ledger_id)

-- name: drop_tombstones
-- Delete the tombstones of these keys whose events still exist.
DELETE FROM tombstones WHERE ledger_id IS NOT NULL AND (source, idempotency_key) IN (
    SELECT requested.value ->> 0, requested.value ->> 1 FROM json_each(:keys) AS requested)

-- name: tombstones_open
-- Return a row if there is a tombstone whose event still exists.
SELECT 1 FROM tombstones WHERE ledger_id IS NOT NULL AND tombstoned_at > '' LIMIT 1

-- name: purge_tombstones
-- Delete closed tombstones that are old enough.
DELETE FROM tombstones WHERE (source, idempotency_key) IN (
    SELECT source, idempotency_key FROM tombstones
    WHERE ledger_id IS NULL AND tombstoned_at < :tombstoned_before ORDER BY tombstoned_at LIMIT :limit)

-- name: prune_fingerprints
-- Delete fingerprints that have expired.
DELETE FROM fingerprints WHERE (source, payload_sha256) IN (
    SELECT source, payload_sha256 FROM fingerprints
    WHERE recorded_at <= :before ORDER BY recorded_at LIMIT :limit)

-- name: prune_audit
-- Delete old entries of the audit log.
DELETE FROM audit WHERE audit_id IN (
    SELECT audit_id FROM audit WHERE at < :before ORDER BY at LIMIT :limit)
