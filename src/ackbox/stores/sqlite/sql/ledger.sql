-- name: record
-- Insert the events whose keys are new: neither in the table nor in a tombstone.
-- The row is repeated for each event of a batch. PostgreSQL passes arrays, and also saves the cursor,
-- adds live rows and updates the counts in this statement.
WITH fresh (
    -- here: envelope_fields
) AS (VALUES
    -- here: envelope_row
)
INSERT INTO events (
    -- here: recorded_columns
    , created_at, updated_at, last_seen_at, claimable_at)
SELECT
    -- here: recorded_columns
    , received_at, received_at, received_at, CASE WHEN lane IS NULL THEN received_at END
FROM fresh WHERE NOT EXISTS (
    SELECT 1 FROM tombstones
    WHERE source = fresh.source AND idempotency_key = fresh.idempotency_key)
ON CONFLICT (source, idempotency_key) DO NOTHING

-- name: events_by_key
-- Return the events that have these keys, as one JSON array.
SELECT json_group_array(json_array(
    source, idempotency_key, ledger_id, events.id, status, created_at, hex(payload_sha256)))
FROM json_each(:keys) AS requested
JOIN events ON source = requested.value ->> 0 AND idempotency_key = requested.value ->> 1

-- name: tombstones_by_key
-- Return the tombstones of these keys, in the shape of `events_by_key`.
SELECT json_group_array(json_array(
    source, idempotency_key, NULL, tombstones.id, status, created_at, hex(payload_sha256)))
FROM json_each(:keys) AS requested
JOIN tombstones ON source = requested.value ->> 0 AND idempotency_key = requested.value ->> 1

-- name: count_repeats
-- Count the repeated deliveries of each event.
UPDATE events SET
    ingest_count = ingest_count + (repeat.value ->> 1),
    conflict_count = conflict_count + (repeat.value ->> 2),
    last_seen_at = max(last_seen_at, repeat.value ->> 3)
FROM json_each(:repeats) AS repeat
WHERE ledger_id = repeat.value ->> 0

-- name: save_cursor
-- Save how far a source was read.
INSERT INTO cursors (source, cursor, updated_at) VALUES (?, ?, ?)
ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at

-- name: cursor
-- Return how far a source was read.
SELECT cursor FROM cursors WHERE source = :source

-- name: write_probe
-- Overwrite the only row of the probe table, to prove that a write succeeds.
INSERT INTO write_probe (only_row, probed_at) VALUES (1, :now)
ON CONFLICT (only_row) DO UPDATE SET probed_at = excluded.probed_at
