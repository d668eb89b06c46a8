-- What share of the rows is due or running changes within a second, and the planner's statistics
-- do not follow. So each block is written such that only one index can serve it.
--
-- A place in the live_events is locked before its event, and each in the order of their numbers, so that
-- nobody waits in a circle; a claim and a renewal skip the places that others have.
--
-- `(:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]` is what was given for that row, found by
-- halving: `:rows` is sorted, and has a row once. A join could be planned as one row times another.

-- part: claiming
placed AS (
    UPDATE {schema}.live_events SET
        run = run + 1,
        unsettled = unsettled + (lease_until IS NOT NULL)::int,
        suspect = unsettled + (lease_until IS NOT NULL)::int >= 1,
        lease_until = now() + :lease::interval
    WHERE ctid = ANY (ARRAY(SELECT place FROM picked))
    RETURNING ledger_id, due_at
), claimed AS (
    UPDATE {schema}.events SET
        status = 'processing',
        run = run + 1,
        -- Taking over an ended lease gives the attempt of that run back, unless a suspect had it.
        attempts = attempts + (status <> 'processing' OR unsettled >= 2)::int,
        unsettled = unsettled + (status = 'processing')::int,
        processor_id = :worker,
        lease_until = now() + :lease::interval,
        claimable_at = now() + :lease::interval,
        updated_at = now()
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM placed))
    RETURNING ledger_id, id::text, run, source, idempotency_key, event_type, content_type, headers,
        attempts, unsettled, lane, source_sequence, source_emitted_at, created_at, replayed_at,
        request_id, payload
), counted AS (
    -- Those that were processing already did not move.
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move(
        'pending', 'processing', (SELECT count(*) FROM picked WHERE pending))
)

-- name: claim
WITH RECURSIVE found (source) AS (
    (SELECT source FROM {schema}.live_events
     WHERE :full_scan::bool AND due_at IS NOT NULL AND NOT suspect
       AND (source, due_at) > ('', '-infinity')
     ORDER BY source, due_at LIMIT 1)
    UNION ALL
    SELECT (
        SELECT source FROM {schema}.live_events
        WHERE due_at IS NOT NULL AND NOT suspect
          AND (source, due_at) > (found.source, 'infinity')
        ORDER BY source, due_at LIMIT 1
    ) FROM found WHERE found.source IS NOT NULL
), places (source, since, after) AS (
    SELECT source, '-infinity'::timestamptz, 0::bigint FROM found WHERE source IS NOT NULL
    UNION ALL
    SELECT * FROM unnest(:sources::text[], :since::timestamptz[], :after::bigint[])
), asked AS MATERIALIZED (
    -- What runs elsewhere stands in the index too: as much as all instances hold, and no more.
    SELECT places.*, coalesce(held, 0) AS held, (
        SELECT due_at FROM {schema}.live_events
        WHERE live_events.source = places.source AND NOT suspect
          AND (due_at, ledger_id) > (since, after)
          AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
        ORDER BY due_at, ledger_id LIMIT 1) AS head, (
        SELECT due_at FROM {schema}.live_events
        WHERE live_events.source = places.source AND NOT suspect AND due_at > now()
        ORDER BY due_at, ledger_id LIMIT 1) AS next
    FROM places LEFT JOIN unnest(:holders::text[], :held::int[]) AS holds (source, held)
    USING (source)
), due AS (
    SELECT *, count(*) OVER () AS sources FROM asked WHERE head IS NOT NULL
), taken AS MATERIALIZED (
    SELECT due.head, free.*
    FROM due CROSS JOIN LATERAL (
        SELECT ctid AS place, ledger_id, due_at, lease_until IS NULL AS pending FROM {schema}.live_events
        WHERE live_events.source = due.source AND NOT suspect
          AND (due_at, ledger_id) > (due.since, due.after)
          AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
        ORDER BY due_at, ledger_id
        LIMIT greatest(least(:limit::int, CASE WHEN due.sources > 1 THEN :share::int
                                               ELSE :alone::int END - due.held), 0)
        FOR UPDATE SKIP LOCKED
    ) AS free
), picked AS MATERIALIZED (
    SELECT place, pending FROM taken ORDER BY head, due_at, ledger_id LIMIT :limit::int
),
-- here: claiming
SELECT claimed.*, placed.due_at, extract(epoch FROM least((SELECT min(next) FROM asked), (
    -- Where nothing is free, all that is due runs.
    SELECT min(lease_until) FROM asked CROSS JOIN LATERAL (
        SELECT lease_until FROM {schema}.live_events
        WHERE asked.head IS NULL AND live_events.source = asked.source AND NOT suspect
          AND (due_at, ledger_id) > (since, after) AND due_at <= now()) AS running
)) - now()) AS next_due
FROM (SELECT 1) AS always LEFT JOIN (claimed JOIN placed USING (ledger_id)) ON true
ORDER BY placed.due_at, claimed.ledger_id

-- name: claim_among
WITH due AS MATERIALIZED (
    SELECT ctid AS place, ledger_id, due_at, lease_until IS NULL AS pending FROM {schema}.live_events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM {schema}.events WHERE id = ANY (:ids::uuid[])))
      AND NOT suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT place, pending FROM due ORDER BY due_at, ledger_id LIMIT :limit::int
),
-- here: claiming
SELECT claimed.* FROM claimed ORDER BY ledger_id

-- name: suspect
-- Return the next suspect, and what its next claim will count. The one with the fewest ended runs
-- comes first: those that must run alone come last.
SELECT id::text, source, event_type,
       attempts + (status <> 'processing' OR unsettled >= 2)::int AS attempts,
       unsettled + (status = 'processing')::int AS unsettled
FROM {schema}.events WHERE ledger_id = (
    SELECT ledger_id FROM {schema}.live_events
    WHERE suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    ORDER BY unsettled + (lease_until IS NOT NULL)::int, due_at, ledger_id LIMIT 1)

-- name: claim_suspect
WITH picked AS MATERIALIZED (
    SELECT ctid AS place, lease_until IS NULL AS pending FROM {schema}.live_events
    WHERE ledger_id = (SELECT ledger_id FROM {schema}.events WHERE id = :id::uuid)
      AND suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    FOR UPDATE SKIP LOCKED
),
-- here: claiming
SELECT claimed.* FROM claimed

-- name: renew
WITH ours AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.live_events
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
), free AS MATERIALIZED (
    -- What is being settled is locked, and needs no longer lease: the others must not wait for it.
    SELECT ledger_id FROM {schema}.live_events
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    FOR UPDATE SKIP LOCKED
), placed AS (
    UPDATE {schema}.live_events SET lease_until = now() + :lease::interval
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
    RETURNING ledger_id
), renewed AS (
    UPDATE {schema}.events SET
        lease_until = now() + :lease::interval, claimable_at = now() + :lease::interval
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM placed))
)
SELECT ledger_id FROM ours

-- name: held
SELECT ledger_id, run FROM {schema}.live_events
WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
  AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
ORDER BY ledger_id FOR UPDATE

-- name: settled
SELECT ledger_id, run, outcome, last_error FROM {schema}.events
WHERE ledger_id = ANY (:rows::bigint[]) AND processor_id IS NULL
  AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]

-- name: settle_done
WITH ours AS (
    DELETE FROM {schema}.live_events
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    RETURNING ledger_id
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'completed', (SELECT count(*) FROM ours))
)
UPDATE {schema}.events SET
    status = 'completed', outcome = :outcome, unsettled = 0, retry_after = NULL,
    processor_id = NULL, lease_until = NULL, claimable_at = NULL,
    processed_at = now(), updated_at = now()
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM ours))
RETURNING ledger_id, run

-- part: failure
    last_error = (:errors::text[])[width_bucket(ledger_id, :rows::bigint[])],
    error_code = (:codes::text[])[width_bucket(ledger_id, :rows::bigint[])],
    -- The last ten, and the tracebacks of the last three: the row stays small.
    errors = CASE WHEN jsonb_array_length(errors) >= 10 THEN (errors #- '{-3,traceback}') - 0
                  ELSE coalesce(errors, '[]') #- '{-3,traceback}' END
        || jsonb_strip_nulls(jsonb_build_object(
            'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'attempt', attempts, 'run', run,
            'code', (:codes::text[])[width_bucket(ledger_id, :rows::bigint[])],
            'error', (:errors::text[])[width_bucket(ledger_id, :rows::bigint[])],
            'traceback', (:tracebacks::text[])[width_bucket(ledger_id, :rows::bigint[])])),

-- part: postponing
WITH ours AS (
    UPDATE {schema}.live_events SET
        unsettled = 0, suspect = false, lease_until = NULL,
        due_at = CASE WHEN lane IS NULL OR NOT EXISTS (
            SELECT 1 FROM {schema}.live_events AS older
            WHERE (older.source, older.lane, older.ledger_id) > (live_events.source, live_events.lane, 0)
              AND (older.source, older.lane, older.ledger_id)
                < (live_events.source, live_events.lane, live_events.ledger_id)
              AND older.lane IS NOT NULL AND NOT older.failed)
            THEN now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])] END
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    RETURNING ledger_id, due_at
), places AS MATERIALIZED (
    SELECT array_agg(ledger_id ORDER BY ledger_id) AS rows,
           array_agg(due_at ORDER BY ledger_id) AS due
    FROM ours
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'pending', (SELECT count(*) FROM ours))
)

-- name: settle_retry
-- here: postponing
UPDATE {schema}.events SET
    status = 'pending', outcome = 'retry', unsettled = 0, processor_id = NULL, lease_until = NULL,
    retry_after = now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])],
    claimable_at = (SELECT due FROM places)[
        width_bucket(ledger_id, (SELECT places.rows FROM places))],
    -- here: failure
    updated_at = now()
WHERE ledger_id = ANY ((SELECT places.rows FROM places)::bigint[])
RETURNING ledger_id, run

-- name: settle_snooze
-- here: postponing
UPDATE {schema}.events SET
    status = 'pending', outcome = 'snoozed', unsettled = 0, attempts = attempts - 1,
    processor_id = NULL, lease_until = NULL,
    retry_after = now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])],
    claimable_at = (SELECT due FROM places)[
        width_bucket(ledger_id, (SELECT places.rows FROM places))],
    updated_at = now()
WHERE ledger_id = ANY ((SELECT places.rows FROM places)::bigint[])
RETURNING ledger_id, run

-- name: settle_dead
WITH ours AS (
    UPDATE {schema}.live_events SET
        unsettled = 0, suspect = false, lease_until = NULL, due_at = NULL, failed = true
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    RETURNING ledger_id
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'failed', (SELECT count(*) FROM ours))
)
UPDATE {schema}.events SET
    status = 'failed', outcome = 'dead', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processor_id = NULL, lease_until = NULL,
    -- here: failure
    processed_at = now(), updated_at = now()
WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM ours))
RETURNING ledger_id, run

-- name: settle_release
WITH ours AS (
    UPDATE {schema}.live_events SET
        -- It was not tried to the end: a suspect stays one.
        unsettled = least(unsettled, 2), suspect = unsettled >= 2, lease_until = NULL,
        parked = (:parked::bool[])[width_bucket(ledger_id, :rows::bigint[])],
        due_at = CASE
            WHEN (:parked::bool[])[width_bucket(ledger_id, :rows::bigint[])]
              OR lane IS NOT NULL AND EXISTS (
                SELECT 1 FROM {schema}.live_events AS older
                WHERE (older.source, older.lane, older.ledger_id) > (live_events.source, live_events.lane, 0)
                  AND (older.source, older.lane, older.ledger_id)
                    < (live_events.source, live_events.lane, live_events.ledger_id)
                  AND older.lane IS NOT NULL AND NOT older.failed) THEN NULL
            WHEN (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])] > interval '0'
                THEN now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])]
            ELSE due_at END
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    RETURNING ledger_id, due_at
), places AS MATERIALIZED (
    SELECT array_agg(ledger_id ORDER BY ledger_id) AS rows,
           array_agg(due_at ORDER BY ledger_id) AS due
    FROM ours
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'pending', (SELECT count(*) FROM ours))
)
UPDATE {schema}.events SET
    status = 'pending', unsettled = least(unsettled, 2), attempts = attempts - 1,
    outcome = CASE WHEN (:parked::bool[])[width_bucket(ledger_id, :rows::bigint[])] THEN 'parked' END,
    claimable_at = (SELECT due FROM places)[
        width_bucket(ledger_id, (SELECT places.rows FROM places))],
    processor_id = NULL, lease_until = NULL, updated_at = now()
WHERE ledger_id = ANY ((SELECT places.rows FROM places)::bigint[])
RETURNING ledger_id, run
