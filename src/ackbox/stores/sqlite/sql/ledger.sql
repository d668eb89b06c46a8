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

-- name: complete_deliveries
-- Complete the deliveries that were just inserted. A statement of its own, so that other events do
-- not pay for it.
UPDATE events SET
    status = 'completed', outcome = 'split', claimable_at = NULL, processed_at = created_at
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'pending'

-- name: adopt_items
-- Give the new items of a known delivery the id by which the ledger has that delivery.
UPDATE events SET parent_id = known.value ->> 1
FROM json_each(:known) AS known WHERE parent_id = known.value ->> 0

-- name: known_fingerprints
-- Return for each envelope whether its key is known, and the key of the event with its fingerprint.
SELECT json_group_array(json_array(
    EXISTS (SELECT 1 FROM events
            WHERE source = sent.value ->> 0 AND idempotency_key = sent.value ->> 1)
    OR EXISTS (SELECT 1 FROM tombstones
               WHERE source = sent.value ->> 0 AND idempotency_key = sent.value ->> 1),
    (SELECT idempotency_key FROM fingerprints
     WHERE source = sent.value ->> 0 AND payload_sha256 = unhex(sent.value ->> 2)
       AND recorded_at > :recorded_after)
) ORDER BY sent.key)
FROM json_each(:sent) AS sent

-- name: add_fingerprints
-- Save the fingerprints of these new events, also in place of fingerprints that have expired.
INSERT INTO fingerprints (source, payload_sha256, idempotency_key, recorded_at)
SELECT source, unhex(fresh.value ->> 1), idempotency_key, :now
FROM json_each(:fresh) AS fresh JOIN events ON events.id = fresh.value ->> 0
WHERE true
ON CONFLICT (source, payload_sha256) DO UPDATE SET
    idempotency_key = excluded.idempotency_key, recorded_at = excluded.recorded_at

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
