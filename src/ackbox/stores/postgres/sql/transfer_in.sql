-- name: lock_promotion
-- Lock the promotion: a server that starts now waits, and then sees that a promotion has begun.
LOCK TABLE {schema}.promotion IN ACCESS EXCLUSIVE MODE

-- name: promotion
-- Return the promotion into this ledger.
SELECT file, identity, current_table, last_key, rows, finished_at FROM {schema}.promotion

-- name: begin_promotion
-- Note that a promotion has begun.
INSERT INTO {schema}.promotion (only_row, file, identity, current_table, last_key, rows, began_at)
VALUES (1, :file, :identity, :current_table, :last_key, 0, now())

-- name: advance_promotion
-- Note the last row transferred, unless another process advanced the promotion.
UPDATE {schema}.promotion SET current_table = :current_table, last_key = :last_key, rows = :rows
WHERE current_table = :previous_table AND last_key = :previous_key AND finished_at IS NULL
RETURNING 1

-- name: finish_promotion
-- Mark the promotion as finished.
UPDATE {schema}.promotion SET finished_at = now() WHERE finished_at IS NULL RETURNING 1

-- name: has_rows
-- Return whether the ledger has rows that a promotion would mix with.
SELECT EXISTS (SELECT 1 FROM {schema}.events) OR EXISTS (SELECT 1 FROM {schema}.tombstones)
    OR EXISTS (SELECT 1 FROM {schema}.cursors) OR EXISTS (SELECT 1 FROM {schema}.audit)
    OR EXISTS (SELECT 1 FROM {schema}.submissions)
    OR EXISTS (SELECT 1 FROM {schema}.quarantine)

-- name: other_processes
-- Count the connections of other processes of this ledger.
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = :application AND pid <> pg_backend_pid()

-- name: set_sequences
-- Set the sequences, so that new rows get numbers after those of the file.
SELECT setval(pg_get_serial_sequence('{schema}.events', 'ledger_id'), greatest(:ledger_id::bigint, 1),
              :ledger_id::bigint > 0),
       setval(pg_get_serial_sequence('{schema}.audit', 'audit_id'), greatest(:audit_id::bigint, 1),
              :audit_id::bigint > 0),
       setval(pg_get_serial_sequence('{schema}.submissions', 'submission_id'),
              greatest(:submission_id::bigint, 1), :submission_id::bigint > 0),
       setval(pg_get_serial_sequence('{schema}.quarantine', 'quarantine_id'),
              greatest(:quarantine_id::bigint, 1), :quarantine_id::bigint > 0)

-- name: analyze
-- Update the statistics: otherwise the server would plan for empty tables.
ANALYZE {schema}.events, {schema}.live_events, {schema}.tombstones, {schema}.fingerprints,
    {schema}.audit, {schema}.lanes

-- name: import_events
-- Insert events as they were in the file. A lease of the file has expired: its process is gone.
WITH transferred AS (
    INSERT INTO {schema}.events (
        -- here: transfer_columns
        , payload_json)
    SELECT
        -- here: transferred_values
        , {schema}.parse_json(payload)
    FROM unnest(
        -- here: transfer_arrays
    ) AS sent (
        -- here: transfer_columns
    )
    RETURNING ledger_id, source, lane, status
), counted AS (
    INSERT INTO {schema}.status_counts (status, events) SELECT status, count(*) FROM transferred GROUP BY status
)
INSERT INTO {schema}.lanes (source, lane, last_locked_at)
SELECT DISTINCT source, lane, now() FROM transferred
WHERE lane IS NOT NULL AND status IN ('pending', 'processing')
ON CONFLICT (source, lane) DO NOTHING

-- name: import_tombstones
-- Insert tombstones as they were in the file.
INSERT INTO {schema}.tombstones (
    source, idempotency_key, id, status, created_at, payload_sha256, tombstoned_at, ledger_id)
SELECT source, idempotency_key, id, status, created_at::timestamptz, payload_sha256,
       tombstoned_at::timestamptz, ledger_id
FROM unnest(
    :source::text[], :idempotency_key::text[], :id::uuid[], :status::text[], :created_at::text[],
    :payload_sha256::bytea[], :tombstoned_at::text[], :ledger_id::bigint[]
) AS sent (
    source, idempotency_key, id, status, created_at, payload_sha256, tombstoned_at, ledger_id)

-- name: import_fingerprints
-- Insert fingerprints as they were in the file.
INSERT INTO {schema}.fingerprints (source, payload_sha256, idempotency_key, recorded_at)
SELECT source, decode(payload_sha256, 'hex'), idempotency_key, recorded_at::timestamptz
FROM unnest(:source::text[], :payload_sha256::text[], :idempotency_key::text[], :recorded_at::text[])
     AS sent (source, payload_sha256, idempotency_key, recorded_at)

-- name: import_cursors
-- Insert cursors as they were in the file.
INSERT INTO {schema}.cursors (source, cursor, updated_at)
SELECT source, cursor, updated_at::timestamptz
FROM unnest(:source::text[], :cursor::text[], :updated_at::text[])
     AS sent (source, cursor, updated_at)

-- name: import_audit
-- Insert entries of the audit log as they were in the file.
INSERT INTO {schema}.audit (audit_id, at, actor, peer, action, event_id, detail)
SELECT audit_id, at::timestamptz, actor, peer, action, event_id, detail
FROM unnest(:audit_id::bigint[], :at::text[], :actor::text[], :peer::text[], :action::text[],
            :event_id::uuid[], :detail::text[])
     AS sent (audit_id, at, actor, peer, action, event_id, detail)

-- name: import_submissions
-- Insert submissions as they were in the file: the first server that starts records them.
INSERT INTO {schema}.submissions (
    submission_id, submitted_at, source, idempotency_key, event_type, lane, transport, parent_id,
    content_type, payload)
SELECT submission_id, submitted_at::timestamptz, source, idempotency_key, event_type, lane, transport,
       parent_id, content_type, payload
FROM unnest(
    :submission_id::bigint[], :submitted_at::text[], :source::text[], :idempotency_key::text[],
    :event_type::text[], :lane::text[], :transport::text[], :parent_id::uuid[], :content_type::text[],
    :payload::bytea[]
) AS sent (
    submission_id, submitted_at, source, idempotency_key, event_type, lane, transport, parent_id,
    content_type, payload)

-- name: import_quarantine
-- Insert requests of the quarantine as they were in the file, and add them to the usage.
WITH transferred AS (
    INSERT INTO {schema}.quarantine (
        quarantine_id, source, reason, detail, delivery_id, received_at, kept_at, size, head, body)
    SELECT quarantine_id, source, reason, detail, delivery_id, received_at::timestamptz,
           kept_at::timestamptz, size, head, body
    FROM unnest(
        :quarantine_id::bigint[], :source::text[], :reason::text[], :detail::text[],
        :delivery_id::uuid[], :received_at::text[], :kept_at::text[], :size::bigint[],
        :head::bytea[], :body::bytea[]
    ) AS sent (
        quarantine_id, source, reason, detail, delivery_id, received_at, kept_at, size, head, body)
    RETURNING source, size
)
INSERT INTO {schema}.quarantine_usage AS used (source, requests, bytes)
SELECT source, count(*), sum(size) FROM transferred GROUP BY source
ON CONFLICT (source) DO UPDATE SET
    requests = used.requests + excluded.requests, bytes = used.bytes + excluded.bytes

-- name: imported_events
-- Return events for comparison with the file.
SELECT
    -- here: compared_columns
FROM {schema}.events WHERE ledger_id = ANY (:ledger_id::bigint[])

-- name: imported_tombstones
-- Return tombstones for comparison with the file.
SELECT source, idempotency_key, id::text, status, created_at, payload_sha256, tombstoned_at, ledger_id
FROM {schema}.tombstones JOIN unnest(:source::text[], :idempotency_key::text[])
     AS wanted (source, idempotency_key) USING (source, idempotency_key)

-- name: imported_fingerprints
-- Return fingerprints for comparison with the file.
SELECT source, encode(kept.payload_sha256, 'hex'), idempotency_key, recorded_at
FROM {schema}.fingerprints AS kept JOIN unnest(:source::text[], :payload_sha256::text[])
     AS wanted (source, payload_sha256) USING (source)
WHERE kept.payload_sha256 = decode(wanted.payload_sha256, 'hex')

-- name: imported_cursors
-- Return cursors for comparison with the file.
SELECT source, cursor, updated_at FROM {schema}.cursors WHERE source = ANY (:source::text[])

-- name: imported_audit
-- Return entries of the audit log for comparison with the file.
SELECT audit_id, at, actor, peer, action, event_id::text, detail FROM {schema}.audit
WHERE audit_id = ANY (:audit_id::bigint[])

-- name: imported_submissions
-- Return submissions for comparison with the file.
SELECT submission_id, submitted_at, source, idempotency_key, event_type, lane, transport,
       parent_id::text, content_type, payload
FROM {schema}.submissions WHERE submission_id = ANY (:submission_id::bigint[])

-- name: imported_quarantine
-- Return requests of the quarantine for comparison with the file.
SELECT quarantine_id, source, reason, detail, delivery_id::text, received_at, kept_at, size, head, body
FROM {schema}.quarantine WHERE quarantine_id = ANY (:quarantine_id::bigint[])

-- name: imported_counts
-- Return how many rows each transferred table has.
SELECT 'events' AS name, count(*) FROM {schema}.events
UNION ALL SELECT 'tombstones', count(*) FROM {schema}.tombstones
UNION ALL SELECT 'fingerprints', count(*) FROM {schema}.fingerprints
UNION ALL SELECT 'cursors', count(*) FROM {schema}.cursors
UNION ALL SELECT 'audit', count(*) FROM {schema}.audit
UNION ALL SELECT 'submissions', count(*) FROM {schema}.submissions
UNION ALL SELECT 'quarantine', count(*) FROM {schema}.quarantine
