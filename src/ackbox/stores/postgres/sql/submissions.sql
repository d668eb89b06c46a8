-- name: submit
-- Write the events that handlers send, in the transaction that completes the handlers' own events.
INSERT INTO {schema}.submissions (
    submitted_at, transport, source, idempotency_key, event_type, lane, content_type, parent_id, payload)
SELECT now(), 'app', sent.*
FROM unnest(:sources::text[], :keys::text[], :types::text[], :lanes::text[], :content_types::text[],
            :parents::uuid[], :payloads::bytea[]) AS sent

-- name: take_submissions
-- Delete the oldest submissions that no other instance is moving, and return them: at most `limit` rows,
-- and no further row once they hold `bytes` bytes. One instance at a time takes rows with a lane, so
-- that each lane keeps its order. SQLite has one writer, which takes all rows in order.
DELETE FROM {schema}.submissions WHERE submission_id = ANY (ARRAY(
    SELECT submission_id FROM (
        SELECT submission_id, sum(size) OVER (ORDER BY submission_id) - size AS bytes_before
        FROM (SELECT submission_id, octet_length(payload) AS size FROM {schema}.submissions
              WHERE lane IS NULL OR (SELECT pg_try_advisory_xact_lock(:lanes_lock))
              ORDER BY submission_id LIMIT :limit FOR UPDATE SKIP LOCKED) AS free
    ) AS summed WHERE bytes_before < :bytes::bigint))
RETURNING submission_id, source, idempotency_key, event_type, lane, transport, parent_id::text,
          content_type, payload

-- name: oldest_submission
-- Return when the oldest submission was written that is not recorded yet.
SELECT submitted_at FROM {schema}.submissions ORDER BY submission_id LIMIT 1
