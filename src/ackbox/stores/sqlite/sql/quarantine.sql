-- name: keep_requests
-- Keep one request; it is run for each request. PostgreSQL keeps a batch in one statement, and updates
-- the usage there.
INSERT INTO quarantine (source, reason, detail, delivery_id, received_at, size, head, body, kept_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: quarantine_usage
-- Return how much of each source is kept.
SELECT source, requests, bytes FROM quarantine_usage WHERE requests > 0 ORDER BY source

-- name: quarantine_page
-- Return kept requests without their contents, oldest first.
SELECT quarantine_id AS id, source, reason, detail, delivery_id, received_at, kept_at, size
FROM quarantine
WHERE quarantine_id > :cursor AND quarantine_id <= :last
  AND (:source IS NULL OR source = :source) AND (:reason IS NULL OR reason = :reason)
ORDER BY quarantine_id LIMIT :limit

-- name: quarantined_requests
-- Return kept requests with their contents.
SELECT quarantine_id AS id, source, reason, detail, delivery_id, received_at, kept_at, size, head, body
FROM quarantine WHERE quarantine_id IN (SELECT value FROM json_each(:ids)) ORDER BY quarantine_id

-- name: remove_quarantined
-- Delete kept requests, and return what the audit says about them.
DELETE FROM quarantine WHERE quarantine_id IN (SELECT value FROM json_each(:ids))
RETURNING quarantine_id, source, reason

-- name: prune_quarantine
-- Delete the oldest requests that were kept for long enough.
DELETE FROM quarantine WHERE quarantine_id IN (
    SELECT quarantine_id FROM quarantine WHERE kept_at < :before ORDER BY kept_at LIMIT :limit)
