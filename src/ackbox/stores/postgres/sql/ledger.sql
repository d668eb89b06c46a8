-- name: record
-- Insert the events whose keys are new, with their live rows, and save the cursors.
-- SQLite has one writer, which assigns `ledger_id` in the order of commits, so it needs no read
-- horizon.
WITH horizon AS MATERIALIZED (
    -- The key of this lock contains the last `ledger_id` that was assigned. The events of this
    -- transaction get higher numbers. Readers see the lock until the transaction ends: see
    -- `read_horizon.py`.
    SELECT pg_advisory_xact_lock_shared(
        ('{schema}.events'::regclass::oid::bigint << 32)
        | (CASE WHEN is_called THEN last_value ELSE 0 END & 4294967295))::text AS held
    FROM {schema}.events_ledger_id_seq
), saved AS (
    INSERT INTO {schema}.cursors (source, cursor, updated_at)
    SELECT source, cursor, now()
    FROM unnest(:cursor_sources::text[], :cursors::text[]) AS read (source, cursor)
    ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at
), numbered AS MATERIALIZED (
    SELECT nextval('{schema}.events_ledger_id_seq') AS ledger_id, fresh.*
    FROM (SELECT count(held) FROM horizon) AS opened, unnest(
        -- here: recorded_arrays
    ) AS fresh (
        -- here: recorded_columns
    )
), fresh AS (
    INSERT INTO {schema}.events (
        -- here: recorded_columns
        , ledger_id, payload_json, created_at, updated_at, last_seen_at, claimable_at)
    SELECT
        -- here: recorded_columns
        , ledger_id, {schema}.parse_json(payload), now(), now(), now(),
        CASE WHEN lane IS NULL THEN now() END
    FROM numbered
    WHERE NOT EXISTS (
        SELECT 1 FROM {schema}.tombstones
        WHERE tombstones.source = numbered.source
          AND tombstones.idempotency_key = numbered.idempotency_key)
    ORDER BY source, idempotency_key, ledger_id
    ON CONFLICT (source, idempotency_key) DO NOTHING
    RETURNING ledger_id, claimable_at, source, event_type, lane
), live AS (
    INSERT INTO {schema}.live_events (ledger_id, due_at, source, event_type, lane)
    SELECT ledger_id, claimable_at, source, event_type, lane FROM fresh
), counted AS (
    INSERT INTO {schema}.status_counts (status, events)
    SELECT 'pending', count(*) FROM fresh HAVING count(*) > 0
)
SELECT now() AS now, count(*) AS new FROM fresh

-- name: repeat
-- Count the repeated deliveries of known keys, and return the event or tombstone of each key.
-- Rows that other transactions have locked are skipped and returned as busy. SQLite has one writer,
-- so no row is ever locked there.
WITH sent AS MATERIALIZED (
    SELECT * FROM unnest(:ids::uuid[], :sources::text[], :keys::text[], :hashes::bytea[])
                  AS sent (id, source, key, sha256)
), kept AS MATERIALIZED (
    SELECT kept.*, kept.id <> sent.id AS again, kept.payload_sha256 <> sent.sha256 AS other
    FROM sent CROSS JOIN LATERAL (
        SELECT source, idempotency_key, ledger_id, id, status, created_at, payload_sha256
        FROM {schema}.events WHERE events.source = sent.source AND idempotency_key = sent.key LIMIT 1
    ) AS kept
), free AS MATERIALIZED (
    -- Do not wait: a transaction that settles or claims one of these rows may wait for another of
    -- these rows.
    SELECT ledger_id FROM {schema}.events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM kept WHERE again))
    FOR UPDATE SKIP LOCKED
), repeats AS MATERIALIZED (
    SELECT array_agg(ledger_id ORDER BY ledger_id) AS rows,
           array_agg(times ORDER BY ledger_id) AS times,
           array_agg(conflicts ORDER BY ledger_id) AS conflicts
    FROM (SELECT ledger_id, count(*) AS times, count(*) FILTER (WHERE other) AS conflicts
          FROM kept WHERE again AND ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
          GROUP BY ledger_id) AS each
), counted AS (
    UPDATE {schema}.events SET
        ingest_count = ingest_count + (SELECT times FROM repeats)[
            width_bucket(ledger_id, (SELECT repeats.rows FROM repeats))],
        conflict_count = conflict_count + (SELECT conflicts FROM repeats)[
            width_bucket(ledger_id, (SELECT repeats.rows FROM repeats))],
        last_seen_at = greatest(last_seen_at, now())
    WHERE ledger_id = ANY ((SELECT repeats.rows FROM repeats)::bigint[])
), known AS (
    SELECT source, idempotency_key, id, status, created_at, payload_sha256,
           bool_or(again AND ledger_id <> ALL (ARRAY(SELECT ledger_id FROM free))) AS busy
    FROM kept GROUP BY 1, 2, 3, 4, 5, 6
    UNION ALL
    SELECT tombstoned.source, idempotency_key, id, status, created_at, payload_sha256, false
    FROM (SELECT DISTINCT source, key FROM sent
          EXCEPT SELECT source, idempotency_key FROM kept) AS missing CROSS JOIN LATERAL (
        SELECT * FROM {schema}.tombstones
        WHERE tombstones.source = missing.source AND idempotency_key = missing.key LIMIT 1
    ) AS tombstoned
)
SELECT json_agg(json_build_array(source, idempotency_key, id, status, created_at,
                                 encode(payload_sha256, 'hex'), busy)) AS known
FROM known

-- name: repeat_one
-- Count repeated deliveries of one event. Wait for its row, while no other lock is held.
UPDATE {schema}.events SET
    ingest_count = ingest_count + :times::bigint,
    conflict_count = conflict_count + :conflicts::bigint,
    last_seen_at = greatest(last_seen_at, now())
WHERE source = :source AND idempotency_key = :key

-- name: complete_deliveries
-- Complete the deliveries that were just inserted, and delete their live rows. A statement of its
-- own, so that other events do not pay for it.
WITH completed AS (
    UPDATE {schema}.events SET
        status = 'completed', outcome = 'split', claimable_at = NULL, processed_at = created_at
    WHERE id = ANY (:ids::uuid[]) AND status = 'pending'
    RETURNING ledger_id
), removed AS (
    DELETE FROM {schema}.live_events WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM completed))
)
INSERT INTO {schema}.status_counts (status, events)
SELECT status, events
FROM {schema}.count_move('pending', 'completed', (SELECT count(*) FROM completed))

-- name: adopt_items
-- Give the new items of a known delivery the id by which the ledger has that delivery. The items
-- are rows of this transaction, so no other transaction has locked them.
UPDATE {schema}.events AS item SET parent_id = kept.id
FROM unnest(:ids::uuid[], :sources::text[], :keys::text[]) AS sent (id, source, key)
CROSS JOIN LATERAL (
    SELECT id FROM {schema}.events
    WHERE events.source = sent.source AND events.idempotency_key = sent.key
    UNION ALL
    SELECT id FROM {schema}.tombstones
    WHERE tombstones.source = sent.source AND tombstones.idempotency_key = sent.key
    LIMIT 1
) AS kept
WHERE item.parent_id = sent.id AND kept.id <> sent.id

-- name: known_fingerprints
-- Return for each envelope whether its key is known, and the key of the event with its fingerprint.
SELECT EXISTS (SELECT 1 FROM {schema}.events
               WHERE events.source = sent.source AND events.idempotency_key = sent.key)
       OR EXISTS (SELECT 1 FROM {schema}.tombstones
                  WHERE tombstones.source = sent.source AND tombstones.idempotency_key = sent.key)
       AS known,
       fingerprints.idempotency_key AS first_key
FROM unnest(:sources::text[], :keys::text[], :hashes::bytea[]) WITH ORDINALITY
     AS sent (source, key, sha256, number)
LEFT JOIN {schema}.fingerprints
    ON fingerprints.source = sent.source AND fingerprints.payload_sha256 = sent.sha256
   AND fingerprints.recorded_at > now() - :window::interval
ORDER BY sent.number

-- name: add_fingerprints
-- Save the fingerprints of these new events, also in place of fingerprints that have expired. Return
-- how many events of other transactions have one of these fingerprints: they committed meanwhile.
WITH fresh AS MATERIALIZED (
    SELECT events.source, sent.sha256 AS payload_sha256, events.idempotency_key
    FROM unnest(:ids::uuid[], :hashes::bytea[]) AS sent (id, sha256)
    JOIN {schema}.events ON events.id = sent.id
), added AS (
    INSERT INTO {schema}.fingerprints (source, payload_sha256, idempotency_key, recorded_at)
    SELECT source, payload_sha256, idempotency_key, now() FROM fresh
    ORDER BY source, payload_sha256
    ON CONFLICT (source, payload_sha256) DO UPDATE SET
        idempotency_key = excluded.idempotency_key, recorded_at = excluded.recorded_at
    WHERE fingerprints.recorded_at <= now() - :window::interval
       OR fingerprints.idempotency_key = excluded.idempotency_key
    RETURNING 1
)
SELECT (SELECT count(*) FROM fresh) - (SELECT count(*) FROM added) AS taken

-- name: cursor
-- Return how far a source was read.
SELECT cursor FROM {schema}.cursors WHERE source = :source

-- name: write_probe
-- Overwrite the only row of the probe table, to prove that a write succeeds.
INSERT INTO {schema}.write_probe (only_row, probed_at) VALUES (1, now())
ON CONFLICT (only_row) DO UPDATE SET probed_at = excluded.probed_at

-- name: compact_counts
-- Replace the rows of `status_counts` by one row per status, unless another instance is doing so
-- now.
WITH gone AS (
    DELETE FROM {schema}.status_counts WHERE (SELECT pg_try_advisory_xact_lock(:lock)) RETURNING status, events
)
INSERT INTO {schema}.status_counts (status, events) SELECT status, sum(events) FROM gone GROUP BY status

-- name: server_time
-- Return the server's clock.
SELECT clock_timestamp()
