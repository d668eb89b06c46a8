-- name: export_events
-- Return the next events, for `ackbox promote`. Leases stay behind.
SELECT
    -- here: transfer_columns
FROM events WHERE ledger_id > ? ORDER BY ledger_id LIMIT ?

-- name: export_tombstones
-- Return the next tombstones.
SELECT source, idempotency_key, id, status, created_at, payload_sha256, tombstoned_at, ledger_id
FROM tombstones WHERE (source, idempotency_key) > (?, ?)
ORDER BY source, idempotency_key LIMIT ?

-- name: export_fingerprints
-- Return the next fingerprints. The hash is text: the progress of a promotion, which is JSON,
-- contains it.
SELECT source, lower(hex(payload_sha256)), idempotency_key, recorded_at
FROM fingerprints WHERE (source, payload_sha256) > (?, unhex(?))
ORDER BY source, payload_sha256 LIMIT ?

-- name: export_cursors
-- Return the next cursors.
SELECT source, cursor, updated_at FROM cursors WHERE source > ? ORDER BY source LIMIT ?

-- name: export_audit
-- Return the next entries of the audit log.
SELECT audit_id, at, actor, peer, action, event_id, detail FROM audit
WHERE audit_id > ? ORDER BY audit_id LIMIT ?

-- name: export_submissions
-- Return the next submissions.
SELECT submission_id, submitted_at, source, idempotency_key, event_type, lane, transport, parent_id,
       content_type, payload
FROM submissions WHERE submission_id > ? ORDER BY submission_id LIMIT ?

-- name: export_quarantine
-- Return the next requests of the quarantine.
SELECT quarantine_id, source, reason, detail, delivery_id, received_at, kept_at, size, head, body
FROM quarantine WHERE quarantine_id > ? ORDER BY quarantine_id LIMIT ?

-- name: export_counts
-- Return how many rows each exported table has.
SELECT 'events', count(*) FROM events
UNION ALL SELECT 'tombstones', count(*) FROM tombstones
UNION ALL SELECT 'fingerprints', count(*) FROM fingerprints
UNION ALL SELECT 'cursors', count(*) FROM cursors
UNION ALL SELECT 'audit', count(*) FROM audit
UNION ALL SELECT 'submissions', count(*) FROM submissions
UNION ALL SELECT 'quarantine', count(*) FROM quarantine

-- name: export_sequences
-- Return the last numbers given to events, audit entries, submissions and requests of the quarantine.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
       coalesce((SELECT max(audit_id) FROM audit), 0),
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'submissions'), 0),
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'quarantine'), 0)

-- name: export_state
-- Return a summary that changes with every write, to identify the contents of the ledger.
SELECT json_array(
    (SELECT json_group_array(json_array(version, checksum, applied_at)) FROM schema_migrations),
    (SELECT seq FROM sqlite_sequence WHERE name = 'events'),
    (SELECT json_array(
        count(*), min(id), max(id), sum(ledger_id), sum(run), sum(attempts), sum(ingest_count),
        max(updated_at), max(last_seen_at)) FROM events),
    (SELECT json_array(count(*), count(ledger_id), max(tombstoned_at)) FROM tombstones),
    (SELECT json_array(count(*), max(recorded_at)) FROM fingerprints),
    (SELECT json_array(count(*), max(updated_at)) FROM cursors),
    (SELECT json_array(count(*), max(audit_id)) FROM audit),
    (SELECT json_array(count(*), max(submission_id)) FROM submissions),
    (SELECT json_array(count(*), sum(quarantine_id), sum(size)) FROM quarantine))

-- name: table_names
-- Return the names of all tables.
SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name
