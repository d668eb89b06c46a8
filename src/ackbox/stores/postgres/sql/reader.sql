-- name: events_by_id
-- Return events by id, without their payloads.
SELECT length(payload) AS payload_bytes,
    -- here: record_columns
FROM {schema}.events WHERE id = ANY (:ids::uuid[])

-- name: id_by_key
-- Return the id of the event with this key.
SELECT id::text FROM {schema}.events WHERE source = :source AND idempotency_key = :idempotency_key

-- name: ids_by_prefix
-- Return the ids from the first to the last that can have this prefix. SQLite stores ids as text.
SELECT id::text FROM {schema}.events WHERE id BETWEEN :first::uuid AND :last::uuid ORDER BY id LIMIT :limit

-- name: content
-- Return the payload and the headers of an event.
SELECT payload, headers FROM {schema}.events WHERE id = :id::uuid

-- part: running
running AS MATERIALIZED (
    -- Running events are nearly always the oldest unfinished events. The stored count of running
    -- events ends the scan early.
    SELECT ledger_id FROM {schema}.live_events
    WHERE :scan = 'processing' AND NOT failed AND lease_until IS NOT NULL
    ORDER BY ledger_id LIMIT (
        SELECT greatest(sum(events), 0)::bigint FROM {schema}.status_counts WHERE status = 'processing')
),

-- part: wanted
    WHERE (:status::text IS NULL OR status = :status)
      AND (NOT :skip_completed::bool OR status <> 'completed')
      AND (NOT :retrying::bool OR attempts > 0)
      AND (:source::text IS NULL OR source = :source)
      AND (:event_type::text IS NULL OR event_type = :event_type)
      AND (:type_prefix::text IS NULL OR starts_with(event_type, :type_prefix))
      AND (:since::timestamptz IS NULL OR created_at >= :since)
      AND (:until::timestamptz IS NULL OR created_at < :until)
      AND (:outcome::text IS NULL OR outcome = :outcome)
      AND (:error_code::text IS NULL OR error_code = :error_code)
      AND (:lane::text IS NULL OR lane = :lane)

-- name: events_newest
-- Return a page of events, newest first, from a window of at most `window` rows.
-- Only the branch that `scan` names runs. Except for `all`, the branches read `live_events`. On
-- SQLite they read partial indexes of `events`.
WITH
-- here: running
candidates AS MATERIALIZED (
    (SELECT ledger_id FROM {schema}.events
     WHERE :scan::text = 'all' AND ledger_id < :cursor
     ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.live_events
     WHERE :scan = 'pending' AND NOT failed AND lease_until IS NULL AND ledger_id < :cursor
     ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.live_events
     WHERE :scan = 'failed' AND failed AND ledger_id < :cursor
     ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM running WHERE ledger_id < :cursor
     ORDER BY ledger_id DESC LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.events
     WHERE :scan = 'parent' AND parent_id = :parent_id::uuid AND ledger_id < :cursor
     ORDER BY ledger_id DESC LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, min(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN LATERAL (
    SELECT ledger_id, id::text FROM candidates JOIN {schema}.events USING (ledger_id)
    -- here: wanted
    ORDER BY ledger_id DESC LIMIT :limit
) AS page ON true
ORDER BY page.ledger_id DESC NULLS LAST

-- name: events_oldest
-- Return a page of events, oldest first, from a window of at most `window` rows. The page ends at
-- the read horizon, because `ledger_id` is assigned before the commit.
WITH
-- here: running
candidates AS MATERIALIZED (
    (SELECT ledger_id FROM {schema}.events
     WHERE :scan::text = 'all' AND ledger_id > :cursor AND ledger_id <= :last_readable
     ORDER BY ledger_id LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.live_events
     WHERE :scan = 'pending' AND NOT failed AND lease_until IS NULL
       AND ledger_id > :cursor AND ledger_id <= :last_readable
     ORDER BY ledger_id LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.live_events
     WHERE :scan = 'failed' AND failed AND ledger_id > :cursor AND ledger_id <= :last_readable
     ORDER BY ledger_id LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM running WHERE ledger_id > :cursor AND ledger_id <= :last_readable
     ORDER BY ledger_id LIMIT :window)
    UNION ALL
    (SELECT ledger_id FROM {schema}.events
     WHERE :scan = 'parent' AND parent_id = :parent_id::uuid AND ledger_id > :cursor
       AND ledger_id <= :last_readable
     ORDER BY ledger_id LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, max(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN LATERAL (
    SELECT ledger_id, id::text FROM candidates JOIN {schema}.events USING (ledger_id)
    -- here: wanted
      AND (NOT :unordered::bool OR (source_sequence IS NULL AND source_emitted_at IS NULL))
    ORDER BY ledger_id LIMIT :limit
) AS page ON true
ORDER BY page.ledger_id

-- name: events_of_source
-- Return a page of events that have a sequence or a time of their source, in the order of these.
WITH candidates AS MATERIALIZED (
    SELECT coalesce(source_sequence, 9223372036854775807) AS sequence,
           coalesce(source_emitted_at, 'infinity') AS emitted, ledger_id
    FROM {schema}.events
    WHERE (source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL) AND source = :source
      AND (coalesce(source_sequence, 9223372036854775807),
           coalesce(source_emitted_at, 'infinity'), ledger_id)
        > (:sequence::bigint, :emitted_at::timestamptz, :ledger_id::bigint)
    ORDER BY coalesce(source_sequence, 9223372036854775807),
             coalesce(source_emitted_at, 'infinity'), ledger_id
    LIMIT :window
)
SELECT sequence, source_emitted_at AS emitted, ledger_id, id::text,
       (:status::text IS NULL OR status = :status)
       AND (NOT :skip_completed::bool OR status <> 'completed')
       AND (NOT :retrying::bool OR attempts > 0)
       AND (:event_type::text IS NULL OR event_type = :event_type)
       AND (:type_prefix::text IS NULL OR starts_with(event_type, :type_prefix))
       AND (:since::timestamptz IS NULL OR created_at >= :since)
       AND (:until::timestamptz IS NULL OR created_at < :until)
       AND (:outcome::text IS NULL OR outcome IS NOT DISTINCT FROM :outcome)
       AND (:error_code::text IS NULL OR error_code IS NOT DISTINCT FROM :error_code)
       AND (:lane::text IS NULL OR lane IS NOT DISTINCT FROM :lane)
       AND (:parent_id::uuid IS NULL OR parent_id IS NOT DISTINCT FROM :parent_id) AS matches
FROM candidates JOIN {schema}.events USING (ledger_id)
ORDER BY candidates.sequence, candidates.emitted, ledger_id

-- name: last_ledger_id
-- Return the last `ledger_id` that was assigned.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.events_ledger_id_seq

-- name: open_ingests
-- Return, for each ingest transaction that is still open, the low bits of the last `ledger_id`
-- before its own.
SELECT DISTINCT objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = '{schema}.events'::regclass::oid

-- name: detail
-- Return the columns of one event that only its detail shows.
SELECT unsettled, claimable_at, headers, errors::text AS errors,
       (SELECT tombstoned_at FROM {schema}.tombstones
        WHERE tombstones.source = events.source
          AND tombstones.idempotency_key = events.idempotency_key
          AND tombstones.ledger_id = events.ledger_id) AS tombstoned_at
FROM {schema}.events WHERE id = :id::uuid

-- name: older_in_lane
-- Return the oldest unfinished event of the lane that is older than this event.
SELECT id::text FROM {schema}.events WHERE ledger_id = (
    SELECT ledger_id FROM {schema}.live_events
    WHERE (source, lane, ledger_id) > (:source, :lane, 0)
      AND (source, lane, ledger_id) < (:source, :lane, :ledger_id)
      AND lane IS NOT NULL AND NOT failed
    ORDER BY source, lane, ledger_id LIMIT 1)

-- name: running_in_lane
-- Return the event of the lane that is running.
SELECT id::text FROM {schema}.events WHERE ledger_id = (
    SELECT ledger_id FROM {schema}.live_events
    WHERE source = :source AND lane = :lane AND lane IS NOT NULL AND due_at IS NOT NULL
      AND lease_until IS NOT NULL LIMIT 1)

-- name: status_counts
-- Return the number of events in each status. There are several rows per status, because instances
-- add rows instead of waiting for the same row.
SELECT status, sum(events)::bigint AS events FROM {schema}.status_counts GROUP BY status

-- name: oldest_pending
-- Return when the oldest pending event was recorded.
SELECT created_at FROM {schema}.events WHERE ledger_id = (
    SELECT ledger_id FROM {schema}.live_events
    WHERE NOT failed AND lease_until IS NULL
    ORDER BY ledger_id LIMIT 1)

-- name: newest_time
-- Return when the newest event or tombstone last changed, and the server's time, by which events
-- are pruned.
SELECT greatest(
    (SELECT updated_at FROM {schema}.events ORDER BY ledger_id DESC LIMIT 1),
    (SELECT max(tombstoned_at) FROM {schema}.tombstones WHERE ledger_id IS NULL),
    (SELECT max(tombstoned_at) FROM {schema}.tombstones WHERE ledger_id IS NOT NULL)), now()

-- name: waiting
-- Count the pending events that are neither parked nor due later, up to the limit. Events behind
-- another event of their lane count too. SQLite subtracts the parked and later events from its
-- stored count.
SELECT count(*) FROM (
    SELECT 1 FROM {schema}.live_events
    WHERE NOT failed AND lease_until IS NULL AND NOT parked AND coalesce(due_at <= now(), true)
    ORDER BY ledger_id LIMIT :limit) AS due

-- name: audit
-- Return a page of the audit log, newest first.
SELECT audit_id, at, actor, peer, action, event_id::text, detail FROM {schema}.audit
WHERE audit_id < :cursor ORDER BY audit_id DESC LIMIT :limit

-- name: audit_of_event
-- Return a page of the audit log of one event, newest first.
SELECT audit_id, at, actor, peer, action, event_id::text, detail FROM {schema}.audit
WHERE event_id = :event_id::uuid AND audit_id < :cursor ORDER BY audit_id DESC LIMIT :limit

-- name: parked_type
-- Return the next source and event type that has parked events.
SELECT source, event_type FROM {schema}.live_events
WHERE parked AND (source, event_type) > (:source, :event_type)
ORDER BY source, event_type LIMIT 1
