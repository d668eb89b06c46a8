-- name: events_by_id
-- Return events by id, without their payloads.
SELECT length(payload) AS payload_bytes,
    -- here: record_columns
FROM events WHERE id IN (SELECT value FROM json_each(:ids))

-- name: id_by_key
-- Return the id of the event with this key.
SELECT id FROM events WHERE source = :source AND idempotency_key = :idempotency_key

-- name: ids_by_prefix
-- Return ids that start with these characters. 'g' sorts after every hexadecimal digit.
-- PostgreSQL stores ids as uuid and compares them with the first and the last id that can have this
-- prefix.
SELECT id FROM events WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT :limit

-- name: content
-- Return the payload and the headers of an event.
SELECT payload, headers FROM events WHERE id = :id

-- part: wanted
    WHERE (:status IS NULL OR status = :status)
      AND (NOT :skip_completed OR status <> 'completed')
      AND (NOT :retrying OR attempts > 0)
      AND (:source IS NULL OR source = :source)
      AND (:event_type IS NULL OR event_type = :event_type)
      AND (:type_prefix IS NULL OR substr(event_type, 1, length(:type_prefix)) = :type_prefix)
      AND (:since IS NULL OR created_at >= :since)
      AND (:until IS NULL OR created_at < :until)
      AND (:outcome IS NULL OR outcome = :outcome)
      AND (:error_code IS NULL OR error_code = :error_code)
      AND (:lane IS NULL OR lane = :lane)

-- name: events_newest
-- Return a page of events, newest first, from a window of at most `window` rows. Each branch reads
-- one index, and only the branch that `scan` names runs. PostgreSQL reads events that are not
-- completed from `live_events`.
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
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'parent' AND parent_id = :parent_id AND ledger_id < :cursor
        ORDER BY ledger_id DESC LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, min(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN (
    SELECT ledger_id, id FROM candidates CROSS JOIN events USING (ledger_id)
    -- here: wanted
    ORDER BY ledger_id DESC LIMIT :limit
) AS page
ORDER BY page.ledger_id DESC

-- name: events_oldest
-- Return a page of events, oldest first, from a window of at most `window` rows. PostgreSQL stops
-- at its read horizon. On SQLite, rows commit in the order of `ledger_id`.
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
    UNION ALL SELECT * FROM (
        SELECT ledger_id FROM events
        WHERE :scan = 'parent' AND parent_id = :parent_id AND ledger_id > :cursor
        ORDER BY ledger_id LIMIT :window)
)
SELECT seen.rows, seen.edge, page.ledger_id, page.id
FROM (SELECT count(*) AS rows, max(ledger_id) AS edge FROM candidates) AS seen
LEFT JOIN (
    SELECT ledger_id, id FROM candidates CROSS JOIN events USING (ledger_id)
    -- here: wanted
      AND (NOT :unordered OR (source_sequence IS NULL AND source_emitted_at IS NULL))
    ORDER BY ledger_id LIMIT :limit
) AS page
ORDER BY page.ledger_id

-- name: events_of_source
-- Return a page of events that have a sequence or a time of their source, in the order of these.
-- PostgreSQL compares row values. For row values SQLite would search the index by source alone, so
-- here three branches spell out the comparison.
WITH candidates AS MATERIALIZED (
    SELECT * FROM (
        SELECT coalesce(source_sequence, 9223372036854775807) AS sequence,
               coalesce(source_emitted_at, '~') AS emitted, ledger_id
        FROM events
        WHERE (source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL) AND source = :source
          AND coalesce(source_sequence, 9223372036854775807) = :sequence
          AND coalesce(source_emitted_at, '~') = :emitted_at AND ledger_id > :ledger_id
        ORDER BY coalesce(source_sequence, 9223372036854775807),
                 coalesce(source_emitted_at, '~'), ledger_id LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT coalesce(source_sequence, 9223372036854775807) AS sequence,
               coalesce(source_emitted_at, '~') AS emitted, ledger_id
        FROM events
        WHERE (source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL) AND source = :source
          AND coalesce(source_sequence, 9223372036854775807) = :sequence
          AND coalesce(source_emitted_at, '~') > :emitted_at
        ORDER BY coalesce(source_sequence, 9223372036854775807),
                 coalesce(source_emitted_at, '~'), ledger_id LIMIT :window)
    UNION ALL SELECT * FROM (
        SELECT coalesce(source_sequence, 9223372036854775807) AS sequence,
               coalesce(source_emitted_at, '~') AS emitted, ledger_id
        FROM events
        WHERE (source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL) AND source = :source
          AND coalesce(source_sequence, 9223372036854775807) > :sequence
        ORDER BY coalesce(source_sequence, 9223372036854775807),
                 coalesce(source_emitted_at, '~'), ledger_id LIMIT :window)
    LIMIT :window
)
SELECT sequence, emitted, ledger_id, id,
       (:status IS NULL OR status = :status)
       AND (NOT :skip_completed OR status <> 'completed')
       AND (NOT :retrying OR attempts > 0)
       AND (:event_type IS NULL OR event_type = :event_type)
       AND (:type_prefix IS NULL OR substr(event_type, 1, length(:type_prefix)) = :type_prefix)
       AND (:since IS NULL OR created_at >= :since)
       AND (:until IS NULL OR created_at < :until)
       AND (:outcome IS NULL OR outcome IS :outcome)
       AND (:error_code IS NULL OR error_code IS :error_code)
       AND (:lane IS NULL OR lane IS :lane)
       AND (:parent_id IS NULL OR parent_id IS :parent_id) AS matches
FROM candidates CROSS JOIN events USING (ledger_id)
ORDER BY sequence, emitted, ledger_id

-- name: detail
-- Return the columns of one event that only its detail shows.
SELECT unsettled, claimable_at, headers, errors,
       (SELECT tombstoned_at FROM tombstones
        WHERE tombstones.source = events.source
          AND tombstones.idempotency_key = events.idempotency_key
          AND tombstones.ledger_id = events.ledger_id) AS tombstoned_at
FROM events WHERE id = :id

-- name: older_in_lane
-- Return the oldest unfinished event of the lane that is older than this event.
SELECT id FROM events
WHERE source = :source AND lane = :lane AND status IN ('pending', 'processing')
  AND ledger_id < :ledger_id
ORDER BY ledger_id LIMIT 1

-- name: running_in_lane
-- Return the event of the lane that is running.
SELECT id FROM events INDEXED BY events_processing
WHERE status = 'processing' AND ledger_id > 0 AND source = :source AND lane = :lane LIMIT 1

-- name: status_counts
-- Return the number of events in each status. PostgreSQL sums several rows for each status.
SELECT status, events FROM status_counts

-- name: oldest_pending
-- Return when the oldest pending event was recorded.
SELECT created_at FROM events WHERE status = 'pending' ORDER BY ledger_id LIMIT 1

-- name: newest_time
-- Return when the newest event last changed.
-- PostgreSQL also returns the server's time, because events are pruned by that time there.
SELECT updated_at FROM events ORDER BY ledger_id DESC LIMIT 1

-- name: newest_tombstone
-- Return when the newest tombstone was written; an empty text if there is none.
-- Each subquery reads one end of an index.
SELECT max(
    coalesce((SELECT max(tombstoned_at) FROM tombstones WHERE ledger_id IS NULL), ''),
    coalesce((SELECT max(tombstoned_at) FROM tombstones WHERE ledger_id IS NOT NULL), ''))

-- name: count_not_due
-- Count events that are claimable later: due later, or running under a lease.
-- PostgreSQL counts waiting events in `live_events` instead.
WITH RECURSIVE sources (source) AS (
    SELECT min(source) FROM events
    WHERE claimable_at IS NOT NULL AND unsettled + (status = 'processing') < 2
    UNION ALL
    SELECT (
        SELECT min(source) FROM events
        WHERE claimable_at IS NOT NULL AND unsettled + (status = 'processing') < 2
          AND source > sources.source
    ) FROM sources WHERE sources.source IS NOT NULL
)
SELECT coalesce(sum((
    SELECT count(*) FROM events
    WHERE events.source = sources.source
      AND claimable_at > :now AND unsettled + (status = 'processing') < 2
)), 0) + (
    SELECT count(*) FROM events
    WHERE claimable_at > :now AND unsettled + (status = 'processing') >= 2
) FROM sources WHERE source IS NOT NULL

-- name: count_all_parked
-- Count parked events.
SELECT count(*) FROM events WHERE outcome = 'parked' AND status = 'pending' AND source > ''

-- name: audit
-- Return a page of the audit log, newest first.
SELECT audit_id, at, actor, peer, action, event_id, detail FROM audit
WHERE audit_id < :cursor ORDER BY audit_id DESC LIMIT :limit

-- name: audit_of_event
-- Return a page of the audit log of one event, newest first.
SELECT audit_id, at, actor, peer, action, event_id, detail FROM audit
WHERE event_id = :event_id AND audit_id < :cursor ORDER BY audit_id DESC LIMIT :limit

-- name: parked_type
-- Return the next source and event type that has parked events.
SELECT source, event_type FROM events
WHERE outcome = 'parked' AND status = 'pending' AND (source, event_type) > (:source, :event_type)
ORDER BY source, event_type LIMIT 1
