-- name: has_future_rows
-- Return whether any row that is not due yet, or any of the newest 1000 pending rows, has an
-- `updated_at` in the future. If so, the clock was set back. SQLite only: a SQLite ledger uses this
-- machine's clock, and PostgreSQL uses the clock of its server.
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
SELECT EXISTS (
        SELECT 1 FROM sources JOIN events ON events.source = sources.source
        WHERE claimable_at > :now AND unsettled + (status = 'processing') < 2
          AND updated_at > :now)
    OR EXISTS (
        SELECT 1 FROM events
        WHERE claimable_at > :now AND unsettled + (status = 'processing') >= 2
          AND updated_at > :now)
    OR EXISTS (
        SELECT 1 FROM (
            SELECT updated_at FROM events WHERE status = 'pending'
            ORDER BY ledger_id DESC LIMIT 1000)
        WHERE updated_at > :now)

-- name: scan_pending
-- Read the next pending rows. Return the last of them, and the rows whose `updated_at` is in the
-- future.
SELECT json_array(
    max(ledger_id), json_group_array(ledger_id) FILTER (WHERE updated_at > :now))
FROM (
    SELECT ledger_id, updated_at FROM events
    WHERE status = 'pending' AND ledger_id > :after ORDER BY ledger_id LIMIT :limit)

-- name: reschedule_future_rows
-- Reschedule events whose `updated_at` is in the future: each keeps its delay, counted from now.
UPDATE events SET
    retry_after = due.at, updated_at = :now,
    claimable_at = CASE WHEN claimable_at IS NOT NULL THEN due.at END
FROM (
    SELECT ledger_id, strftime('%Y-%m-%dT%H:%M:%f000Z', :now, format('+%.3f seconds', max(
        unixepoch(coalesce(retry_after, created_at), 'subsec') - unixepoch(updated_at, 'subsec'),
        0))) AS at
    FROM json_each(:rows) AS requested JOIN events ON ledger_id = requested.value) AS due
WHERE events.ledger_id = due.ledger_id
