-- name: newest_created
-- Return when the newest event was recorded.
SELECT created_at FROM events ORDER BY ledger_id DESC LIMIT 1

-- name: count_parked
-- Count parked events, but no more than the limit.
SELECT count(*) FROM (
    SELECT 1 FROM events WHERE outcome = 'parked' AND status = 'pending' AND source > '' LIMIT :limit)

-- name: recount
-- Return the kept count and the real count of each status.
-- PostgreSQL has several rows of counts per status and sums them first.
SELECT status_counts.status, status_counts.events,
       CASE status_counts.status
           WHEN 'pending' THEN counted.pending
           WHEN 'processing' THEN counted.processing
           WHEN 'completed' THEN counted.completed
           WHEN 'failed' THEN counted.failed
       END
FROM (
    SELECT count(*) FILTER (WHERE status = 'pending') AS pending,
           count(*) FILTER (WHERE status = 'processing') AS processing,
           count(*) FILTER (WHERE status = 'completed') AS completed,
           count(*) FILTER (WHERE status = 'failed') AS failed
    FROM events
) AS counted CROSS JOIN status_counts
