-- name: record
INSERT INTO events (
    id, source, idempotency_key, event_type, content_type, headers, payload, payload_sha256,
    source_sequence, source_emitted_at, lane, transport, verified_by, request_id,
    created_at, updated_at, last_seen_at, claimable_at
)
SELECT * FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS fresh
WHERE NOT EXISTS (
    SELECT 1 FROM tombstones WHERE source = fresh.column2 AND idempotency_key = fresh.column3)
ON CONFLICT (source, idempotency_key) DO NOTHING

-- name: kept
SELECT json_group_array(json_array(
    source, idempotency_key, ledger_id, events.id, status, created_at, hex(payload_sha256)))
FROM json_each(:keys) AS asked
JOIN events ON source = asked.value ->> 0 AND idempotency_key = asked.value ->> 1

-- name: kept_tombstones
SELECT json_group_array(json_array(
    source, idempotency_key, NULL, tombstones.id, status, created_at, hex(payload_sha256)))
FROM json_each(:keys) AS asked
JOIN tombstones ON source = asked.value ->> 0 AND idempotency_key = asked.value ->> 1

-- name: count_repeats
UPDATE events SET
    ingest_count = ingest_count + (repeat.value ->> 1),
    conflict_count = conflict_count + (repeat.value ->> 2),
    last_seen_at = max(last_seen_at, repeat.value ->> 3)
FROM json_each(:repeats) AS repeat
WHERE ledger_id = repeat.value ->> 0

-- name: save_cursor
INSERT INTO cursors (source, cursor, updated_at) VALUES (:source, :cursor, :now)
ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at

-- name: cursor
SELECT cursor FROM cursors WHERE source = :source

-- name: write_probe
INSERT INTO write_probe (only_row, probed_at) VALUES (1, :now)
ON CONFLICT (only_row) DO UPDATE SET probed_at = excluded.probed_at
