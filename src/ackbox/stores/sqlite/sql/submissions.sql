-- name: submit
-- Write an event that a handler sends, in the transaction that completes the handler's own event.
INSERT INTO submissions (
    source, idempotency_key, event_type, lane, content_type, payload, parent_id, submitted_at, transport)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'app')

-- name: take_submissions
-- Delete the oldest submissions, and return them: at most `limit` rows, and no further row once they hold
-- `bytes` bytes.
DELETE FROM submissions WHERE submission_id IN (
    SELECT submission_id FROM (
        SELECT submission_id, sum(size) OVER (ORDER BY submission_id) - size AS bytes_before
        FROM (SELECT submission_id, length(payload) AS size FROM submissions
              WHERE submission_id > 0 ORDER BY submission_id LIMIT :limit)
    ) WHERE bytes_before < :bytes)
RETURNING submission_id, source, idempotency_key, event_type, lane, transport, parent_id, content_type,
          payload

-- name: oldest_submission
-- Return when the oldest submission was written that is not recorded yet.
SELECT submitted_at FROM submissions ORDER BY submission_id LIMIT 1
