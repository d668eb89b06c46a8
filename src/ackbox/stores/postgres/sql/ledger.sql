-- name: record
WITH door AS MATERIALIZED (
    -- Shown while this transaction is open: its events get numbers above this one.
    SELECT pg_advisory_xact_lock_shared((:door_tag::bigint << 48) + last_value)::text AS held
    FROM events_ledger_id_seq
), saved AS (
    INSERT INTO checkpoints (source, cursor, updated_at)
    SELECT :checkpoint_source, :cursor, now() WHERE :checkpoint_source::text IS NOT NULL
    ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at
), numbered AS MATERIALIZED (
    SELECT nextval('events_ledger_id_seq') AS ledger_id, fresh.*
    FROM (SELECT count(held) FROM door) AS opened, unnest(
        :ids::uuid[], :sources::text[], :keys::text[], :types::text[], :content_types::text[],
        :headers::text[], :payloads::bytea[], :hashes::bytea[], :sequences::bigint[],
        :emitted::timestamptz[], :lanes::text[], :transports::text[], :verified::text[],
        :request_ids::text[]
    ) AS fresh (
        id, source, key, event_type, content_type, headers, payload, sha256, sequence, emitted_at,
        lane, transport, verified_by, request_id)
), done AS (
    INSERT INTO events (
        ledger_id, id, source, idempotency_key, event_type, content_type, headers, payload,
        payload_json, payload_sha256, source_sequence, source_emitted_at, lane, transport,
        verified_by, request_id, created_at, updated_at, last_seen_at, claimable_at
    )
    SELECT ledger_id, id, source, key, event_type, content_type, headers, payload,
           ackbox_json(payload), sha256, sequence, emitted_at, lane, transport,
           verified_by, request_id, now(), now(), now(), CASE WHEN lane IS NULL THEN now() END
    FROM numbered
    WHERE NOT EXISTS (
        SELECT 1 FROM tombstones
        WHERE tombstones.source = numbered.source AND idempotency_key = key)
    ORDER BY source, key
    ON CONFLICT (source, idempotency_key) DO UPDATE SET
        ingest_count = events.ingest_count + (events.id <> excluded.id)::int,
        conflict_count = events.conflict_count + (
            events.id <> excluded.id AND events.payload_sha256 <> excluded.payload_sha256)::int,
        last_seen_at = CASE WHEN events.id = excluded.id THEN events.last_seen_at
                            ELSE greatest(events.last_seen_at, excluded.last_seen_at) END
    RETURNING source, idempotency_key, ledger_id, id, status, created_at, payload_sha256,
              xmax = 0 AS is_new
)
SELECT now() AS now, count(*) FILTER (WHERE is_new) AS new, (
    SELECT json_agg(json_build_array(source, idempotency_key, ledger_id, id, status, created_at,
                                     encode(payload_sha256, 'hex')))
    FROM done WHERE NOT is_new) AS kept
FROM done

-- name: kept
SELECT json_agg(json_build_array(source, idempotency_key, ledger_id, id, status, created_at,
                                 encode(payload_sha256, 'hex')))
FROM events JOIN unnest(:sources::text[], :keys::text[]) AS asked (source, idempotency_key)
USING (source, idempotency_key)

-- name: kept_buried
SELECT json_agg(json_build_array(source, idempotency_key, NULL, id, status, created_at,
                                 encode(payload_sha256, 'hex')))
FROM tombstones JOIN unnest(:sources::text[], :keys::text[]) AS asked (source, idempotency_key)
USING (source, idempotency_key)

-- name: count_repeats
UPDATE events SET
    ingest_count = ingest_count + times,
    conflict_count = conflict_count + conflicts,
    last_seen_at = greatest(last_seen_at, now())
FROM unnest(:rows::bigint[], :times::bigint[], :conflicts::bigint[])
     AS repeat (row, times, conflicts)
WHERE ledger_id = repeat.row

-- name: checkpoint
SELECT cursor FROM checkpoints WHERE source = :source

-- name: heartbeat
INSERT INTO heartbeat (only_row, beaten_at) VALUES (1, now())
ON CONFLICT (only_row) DO UPDATE SET beaten_at = excluded.beaten_at

-- name: fold_tallies
WITH gone AS (
    DELETE FROM tallies WHERE (SELECT pg_try_advisory_xact_lock(:tag)) RETURNING status, events
)
INSERT INTO tallies (status, events) SELECT status, sum(events) FROM gone GROUP BY status

-- name: server_time
SELECT clock_timestamp()
