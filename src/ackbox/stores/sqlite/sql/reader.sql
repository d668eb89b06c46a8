-- name: events_by_id
SELECT ledger_id, id, source, idempotency_key, event_type, content_type, length(payload),
       lower(hex(payload_sha256)), status, outcome, attempts, run, last_error, error_code,
       retry_after, processor_id, lease_until, ingest_count, conflict_count, source_sequence,
       source_emitted_at, lane, transport, verified_by, request_id,
       created_at, updated_at, last_seen_at, processed_at
FROM events WHERE id IN (SELECT value FROM json_each(:ids))

-- name: id_by_key
SELECT id FROM events WHERE source = :source AND idempotency_key = :idempotency_key

-- name: ids_by_prefix
SELECT id FROM events WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT :limit

-- name: payload
SELECT payload FROM events WHERE id = :id

-- name: events_newest
WITH candidates AS MATERIALIZED (
    SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'all' AND ledger_id < :cursor
        ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'pending' AND status = 'pending' AND ledger_id < :cursor
        ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'processing' AND status = 'processing' AND ledger_id < :cursor
        ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'failed' AND status = 'failed' AND ledger_id < :cursor
        ORDER BY ledger_id DESC LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, min(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN (
    SELECT ledger_id, id FROM candidates CROSS JOIN events USING (ledger_id)
    WHERE (:status IS NULL OR status = :status)
      AND (NOT :retrying OR attempts > 0)
      AND (:source IS NULL OR source = :source)
      AND (:event_type IS NULL OR event_type = :event_type)
      AND (:since IS NULL OR created_at >= :since)
      AND (:until IS NULL OR created_at < :until)
    ORDER BY ledger_id DESC LIMIT :limit
) AS page
ORDER BY page.ledger_id DESC

-- name: events_oldest
WITH candidates AS MATERIALIZED (
    SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'all' AND ledger_id > :cursor
        ORDER BY ledger_id LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'pending' AND status = 'pending' AND ledger_id > :cursor
        ORDER BY ledger_id LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'processing' AND status = 'processing' AND ledger_id > :cursor
        ORDER BY ledger_id LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'failed' AND status = 'failed' AND ledger_id > :cursor
        ORDER BY ledger_id LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, max(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN (
    SELECT ledger_id, id FROM candidates CROSS JOIN events USING (ledger_id)
    WHERE (:status IS NULL OR status = :status)
      AND (NOT :retrying OR attempts > 0)
      AND (:source IS NULL OR source = :source)
      AND (:event_type IS NULL OR event_type = :event_type)
      AND (:since IS NULL OR created_at >= :since)
      AND (:until IS NULL OR created_at < :until)
    ORDER BY ledger_id LIMIT :limit
) AS page
ORDER BY page.ledger_id

-- name: tallies
SELECT status, events FROM tallies

-- name: oldest_pending
SELECT created_at FROM events WHERE status = 'pending' ORDER BY ledger_id LIMIT 1
