-- name: keep_requests
-- Keep requests, and add them to the usage of their sources.
WITH kept AS (
    INSERT INTO {schema}.quarantine (
        source, reason, detail, delivery_id, received_at, size, head, body, kept_at)
    SELECT source, reason, detail, delivery_id, received_at, size, head, body, now()
    FROM unnest(
        :source::text[], :reason::text[], :detail::text[], :delivery_id::uuid[],
        :received_at::timestamptz[], :size::bigint[], :head::bytea[], :body::bytea[]
    ) WITH ORDINALITY AS sent (
        source, reason, detail, delivery_id, received_at, size, head, body, position)
    ORDER BY position
    RETURNING source, size
)
INSERT INTO {schema}.quarantine_usage AS used (source, requests, bytes)
SELECT source, count(*), sum(size) FROM kept GROUP BY source
ON CONFLICT (source) DO UPDATE SET
    requests = used.requests + excluded.requests, bytes = used.bytes + excluded.bytes

-- name: quarantine_usage
-- Return how much of each source is kept.
SELECT source, requests, bytes FROM {schema}.quarantine_usage WHERE requests > 0 ORDER BY source

-- name: quarantine_page
-- Return kept requests without their contents, oldest first.
SELECT quarantine_id AS id, source, reason, detail, delivery_id::text, received_at, kept_at, size
FROM {schema}.quarantine
WHERE quarantine_id > :cursor AND quarantine_id <= :last
  AND (:source::text IS NULL OR source = :source) AND (:reason::text IS NULL OR reason = :reason)
ORDER BY quarantine_id LIMIT :limit

-- name: quarantined_requests
-- Return kept requests with their contents.
SELECT quarantine_id AS id, source, reason, detail, delivery_id::text, received_at, kept_at, size,
       head, body
FROM {schema}.quarantine WHERE quarantine_id = ANY (:ids::bigint[]) ORDER BY quarantine_id

-- part: subtract_removed
counted AS (
    UPDATE {schema}.quarantine_usage AS used
    SET requests = used.requests - gone.requests, bytes = used.bytes - gone.bytes
    FROM (SELECT source, count(*) AS requests, sum(size) AS bytes FROM removed GROUP BY source) AS gone
    WHERE used.source = gone.source
)
SELECT quarantine_id, source, reason FROM removed

-- name: remove_quarantined
-- Delete kept requests, subtract them from the usage, and return what the audit says about them.
WITH removed AS (
    DELETE FROM {schema}.quarantine WHERE quarantine_id = ANY (:ids::bigint[])
    RETURNING quarantine_id, source, reason, size
),
-- here: subtract_removed

-- name: prune_quarantine
-- Delete the oldest requests that were kept for long enough, and subtract them from the usage.
WITH removed AS (
    DELETE FROM {schema}.quarantine WHERE quarantine_id = ANY (ARRAY(
        SELECT quarantine_id FROM {schema}.quarantine
        WHERE kept_at < now() - :keep::interval ORDER BY kept_at LIMIT :limit))
    RETURNING quarantine_id, source, reason, size
),
-- here: subtract_removed
