-- name: record
INSERT INTO events (
    id, source, idempotency_key, event_type, content_type, headers, payload, payload_sha256,
    source_sequence, source_emitted_at, lane, transport, verified_by, request_id,
    created_at, updated_at, last_seen_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, idempotency_key) DO UPDATE SET
    ingest_count = ingest_count + 1,
    conflict_count = conflict_count + (payload_sha256 <> excluded.payload_sha256),
    last_seen_at = max(last_seen_at, excluded.last_seen_at)
RETURNING source, idempotency_key, id, status, created_at, payload_sha256

-- name: tally
UPDATE tallies SET events = events + :change WHERE status = :status

-- name: save_checkpoint
INSERT INTO checkpoints (source, cursor, updated_at) VALUES (:source, :cursor, :now)
ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at

-- name: checkpoint
SELECT cursor FROM checkpoints WHERE source = :source

-- name: heartbeat
INSERT INTO heartbeat (only_row, beaten_at) VALUES (1, :now)
ON CONFLICT (only_row) DO UPDATE SET beaten_at = excluded.beaten_at
