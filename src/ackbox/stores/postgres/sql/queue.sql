-- What share of the rows is due or running changes within a second, and the planner's statistics
-- do not follow. So each block is written such that only one index can serve it.

-- name: claim
WITH RECURSIVE found (source) AS (
    (SELECT source FROM agenda
     WHERE :whole::bool AND claimable_at IS NOT NULL
       AND (source, claimable_at) > ('', '-infinity')
     ORDER BY source, claimable_at LIMIT 1)
    UNION ALL
    SELECT (
        SELECT source FROM agenda
        WHERE claimable_at IS NOT NULL AND (source, claimable_at) > (found.source, 'infinity')
        ORDER BY source, claimable_at LIMIT 1
    ) FROM found WHERE found.source IS NOT NULL
), places (source, since) AS (
    SELECT source, '-infinity'::timestamptz FROM found WHERE source IS NOT NULL
    UNION ALL
    SELECT * FROM unnest(:sources::text[], :since::timestamptz[])
), asked AS MATERIALIZED (
    SELECT places.source, since, coalesce(held, 0) AS held, (
        SELECT claimable_at FROM agenda
        WHERE agenda.source = places.source AND claimable_at >= since
        ORDER BY claimable_at, ledger_id LIMIT 1) AS head
    FROM places LEFT JOIN unnest(:holders::text[], :held::int[]) AS holds (source, held)
    USING (source)
), suspects AS MATERIALIZED (
    SELECT ledger_id FROM agenda
    WHERE (unsettled >= 2 OR (unsettled = 1 AND status = 'processing'))
      AND (unsettled, claimable_at) > (0, '-infinity')
    ORDER BY unsettled, claimable_at LIMIT 100
), suspect AS MATERIALIZED (
    SELECT ledger_id, claimable_at FROM agenda
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM suspects)) AND claimable_at <= now()
    ORDER BY claimable_at LIMIT 1
    FOR UPDATE SKIP LOCKED
), due AS (
    SELECT *, count(*) OVER () AS sources FROM asked
    WHERE head <= now() AND NOT EXISTS (SELECT 1 FROM suspect)
), taken AS MATERIALIZED (
    SELECT due.head, next.ledger_id, next.claimable_at
    FROM due CROSS JOIN LATERAL (
        SELECT ledger_id, claimable_at FROM agenda
        WHERE agenda.source = due.source
          AND claimable_at >= due.since AND claimable_at <= now()
        ORDER BY claimable_at, ledger_id
        LIMIT greatest(least(:limit::int, CASE WHEN due.sources > 1 THEN :share::int
                                               ELSE :alone::int END - due.held), 0)
        FOR UPDATE SKIP LOCKED
    ) AS next
), picked AS MATERIALIZED (
    (SELECT ledger_id, claimable_at FROM taken
     ORDER BY head, claimable_at, ledger_id LIMIT :limit::int)
    UNION ALL
    SELECT ledger_id, claimable_at FROM suspect WHERE NOT :holding::bool
), free AS MATERIALIZED (
    -- Who settles or renews one of them has its event, and waits for its place in the agenda.
    SELECT ledger_id FROM events WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM picked))
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE events SET
        status = 'processing',
        run = run + 1,
        attempts = attempts + 1,
        unsettled = unsettled + (status = 'processing')::int,
        processor_id = :worker,
        lease_until = now() + :lease::interval,
        claimable_at = now() + :lease::interval,
        updated_at = now()
    FROM picked WHERE events.ledger_id = picked.ledger_id
      AND events.ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
    RETURNING events.ledger_id, id, run, source, idempotency_key, event_type, content_type, headers,
        attempts, unsettled, lane, source_sequence, source_emitted_at, created_at, request_id,
        payload, picked.claimable_at AS due_at
)
SELECT extract(epoch FROM (SELECT min(head) FROM asked WHERE head > now()) - now()) AS next_due,
       claimed.*
FROM (SELECT 1) AS always LEFT JOIN claimed ON true
ORDER BY claimed.due_at, claimed.ledger_id

-- name: claim_among
WITH due AS MATERIALIZED (
    SELECT ledger_id, claimable_at,
           unsettled >= 2 OR (unsettled = 1 AND status = 'processing') AS suspect
    FROM events WHERE id = ANY (:ids::uuid[]) AND claimable_at <= now()
    FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT ledger_id FROM due
    WHERE CASE WHEN (SELECT bool_or(suspect) FROM due) THEN suspect AND NOT :holding::bool
               ELSE true END
    ORDER BY claimable_at, ledger_id
    LIMIT CASE WHEN (SELECT bool_or(suspect) FROM due) THEN 1 ELSE :limit::int END
), claimed AS (
    UPDATE events SET
        status = 'processing',
        run = run + 1,
        attempts = attempts + 1,
        unsettled = unsettled + (status = 'processing')::int,
        processor_id = :worker,
        lease_until = now() + :lease::interval,
        claimable_at = now() + :lease::interval,
        updated_at = now()
    FROM picked WHERE events.ledger_id = picked.ledger_id
    RETURNING events.ledger_id, id, run, source, idempotency_key, event_type, content_type, headers,
        attempts, unsettled, lane, source_sequence, source_emitted_at, created_at, request_id,
        payload, picked.ledger_id AS due_at
)
SELECT NULL AS next_due, claimed.* FROM claimed ORDER BY ledger_id

-- name: renew
WITH ours AS MATERIALIZED (
    SELECT ledger_id FROM events
    JOIN unnest(:rows::bigint[], :runs::int[]) AS held (row, run)
    ON ledger_id = held.row AND events.run = held.run AND processor_id IS NOT NULL
), free AS MATERIALIZED (
    -- What is being settled is locked, and needs no longer lease: the others must not wait for it.
    SELECT ledger_id FROM events JOIN unnest(:rows::bigint[], :runs::int[]) AS held (row, run)
    ON ledger_id = held.row AND events.run = held.run
    WHERE processor_id IS NOT NULL
    ORDER BY ledger_id FOR UPDATE OF events SKIP LOCKED
), renewed AS (
    UPDATE events SET
        lease_until = now() + :lease::interval, claimable_at = now() + :lease::interval
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
)
SELECT ledger_id FROM ours

-- name: held
SELECT ledger_id, events.run
FROM events JOIN unnest(:rows::bigint[], :runs::int[]) AS held (row, run)
ON ledger_id = held.row AND events.run = held.run
WHERE processor_id IS NOT NULL
ORDER BY ledger_id FOR UPDATE OF events

-- name: settled
SELECT ledger_id, events.run
FROM events JOIN unnest(:rows::bigint[], :runs::int[]) AS asked (row, run)
ON ledger_id = asked.row AND events.run = asked.run
WHERE processor_id IS NULL

-- name: settle_done
UPDATE events SET
    status = 'completed', outcome = settled.outcome, unsettled = 0, retry_after = NULL,
    processor_id = NULL, lease_until = NULL, claimable_at = NULL,
    processed_at = now(), updated_at = now()
FROM unnest(:rows::bigint[], :runs::int[], :outcomes::text[]) AS settled (row, run, outcome)
WHERE ledger_id = settled.row AND events.run = settled.run AND processor_id IS NOT NULL
RETURNING ledger_id, events.run

-- name: settle_retry
UPDATE events SET
    status = 'pending', outcome = 'retry', unsettled = 0, retry_after = now() + settled.delay,
    claimable_at = CASE WHEN lane IS NULL OR NOT EXISTS (
        SELECT 1 FROM agenda AS older
        WHERE (older.source, older.lane, older.ledger_id) > (events.source, events.lane, 0)
          AND (older.source, older.lane, older.ledger_id)
            < (events.source, events.lane, events.ledger_id)
          AND older.lane IS NOT NULL AND older.status IN ('pending', 'processing')
          AND NOT older.held) THEN now() + settled.delay END,
    processor_id = NULL, lease_until = NULL,
    last_error = settled.error, error_code = settled.code,
    errors = CASE WHEN jsonb_array_length(errors) >= 10 THEN errors - 0
                  ELSE coalesce(errors, '[]') END
        || jsonb_build_object(
            'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'attempt', attempts, 'run', events.run, 'code', settled.code, 'error', settled.error),
    updated_at = now()
FROM unnest(:rows::bigint[], :runs::int[], :delays::interval[], :errors::text[], :codes::text[])
     AS settled (row, run, delay, error, code)
WHERE ledger_id = settled.row AND events.run = settled.run AND processor_id IS NOT NULL
RETURNING ledger_id, events.run

-- name: settle_dead
UPDATE events SET
    status = 'failed', outcome = 'dead', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processor_id = NULL, lease_until = NULL,
    last_error = settled.error, error_code = settled.code,
    errors = CASE WHEN jsonb_array_length(errors) >= 10 THEN errors - 0
                  ELSE coalesce(errors, '[]') END
        || jsonb_build_object(
            'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'attempt', attempts, 'run', events.run, 'code', settled.code, 'error', settled.error),
    processed_at = now(), updated_at = now()
FROM unnest(:rows::bigint[], :runs::int[], :errors::text[], :codes::text[])
     AS settled (row, run, error, code)
WHERE ledger_id = settled.row AND events.run = settled.run AND processor_id IS NOT NULL
RETURNING ledger_id, events.run

-- name: settle_release
UPDATE events SET
    status = 'pending', outcome = CASE WHEN settled.held THEN 'held' END, unsettled = 0,
    attempts = attempts - 1,
    claimable_at = CASE WHEN NOT settled.held AND (lane IS NULL OR NOT EXISTS (
        SELECT 1 FROM agenda AS older
        WHERE (older.source, older.lane, older.ledger_id) > (events.source, events.lane, 0)
          AND (older.source, older.lane, older.ledger_id)
            < (events.source, events.lane, events.ledger_id)
          AND older.lane IS NOT NULL AND older.status IN ('pending', 'processing')
          AND NOT older.held))
        THEN CASE WHEN settled.delay > interval '0' THEN now() + settled.delay
                  ELSE coalesce(retry_after, created_at) END END,
    processor_id = NULL, lease_until = NULL, updated_at = now()
FROM unnest(:rows::bigint[], :runs::int[], :held::bool[], :delays::interval[])
     AS settled (row, run, held, delay)
WHERE ledger_id = settled.row AND events.run = settled.run AND processor_id IS NOT NULL
RETURNING ledger_id, events.run
