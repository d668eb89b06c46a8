-- The share of rows that are due or running changes within a second, and the planner's statistics do
-- not follow. Each block is therefore written so that only one index can serve it.
--
-- A transaction that changes the state of events locks each live row before its event, and rows in
-- the order of their numbers, so that no two transactions deadlock. A claim and a renewal skip the
-- live rows that other transactions have locked. The counters of repeated deliveries (`repeat` and
-- `repeat_one` in `ledger.sql`) are changed without locking the live row; this cannot deadlock
-- either, because these statements wait for no lock while they hold one.
--
-- `(:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]` is the value given for that row, found by
-- binary search: `:rows` is sorted and has each row once. The planner could turn a join into a nested
-- loop over all pairs.

-- part: claiming
live AS (
    UPDATE {schema}.live_events SET
        run = run + 1,
        unsettled = unsettled + (lease_until IS NOT NULL)::int,
        suspect = unsettled + (lease_until IS NOT NULL)::int >= 1,
        lease_until = now() + :lease::interval
    WHERE ctid = ANY (ARRAY(SELECT tid FROM picked))
    RETURNING ledger_id, due_at
), claimed AS (
    UPDATE {schema}.events SET
        status = 'processing',
        run = run + 1,
        -- Taking over an expired lease spends no attempt, unless the lost run was already the run of
        -- a suspect (`unsettled` was 2 or more).
        attempts = attempts + (status <> 'processing' OR unsettled >= 2)::int,
        unsettled = unsettled + (status = 'processing')::int,
        processor_id = :worker,
        lease_until = now() + :lease::interval,
        claimable_at = now() + :lease::interval,
        updated_at = now()
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM live))
    RETURNING
    -- here: claim_columns
), counted AS (
    -- An event that was processing already keeps its status.
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move(
        'pending', 'processing', (SELECT count(*) FROM picked WHERE pending))
)

-- name: claim
-- Choose events that are due, fairly between sources, and start a run of each under a lease.
-- SQLite chooses the events in a statement of its own, `claimable`, because no other process can
-- claim in between.
WITH RECURSIVE each_source (source) AS (
    (SELECT source FROM {schema}.live_events
     WHERE :full_scan::bool AND due_at IS NOT NULL AND NOT suspect
       AND (source, due_at) > ('', '-infinity')
     ORDER BY source, due_at LIMIT 1)
    UNION ALL
    SELECT (
        SELECT source FROM {schema}.live_events
        WHERE due_at IS NOT NULL AND NOT suspect
          AND (source, due_at) > (each_source.source, 'infinity')
        ORDER BY source, due_at LIMIT 1
    ) FROM each_source WHERE each_source.source IS NOT NULL
), starts (source, since, after) AS (
    SELECT source, '-infinity'::timestamptz, 0::bigint FROM each_source WHERE source IS NOT NULL
    UNION ALL
    SELECT * FROM unnest(:sources::text[], :since::timestamptz[], :after::bigint[])
), heads AS MATERIALIZED (
    -- The index also has the events that run. Their number is limited by how many events all
    -- instances have claimed.
    SELECT starts.*, coalesce(held, 0) AS held, (
        SELECT due_at FROM {schema}.live_events
        WHERE live_events.source = starts.source AND NOT suspect
          AND (due_at, ledger_id) > (since, after)
          AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
        ORDER BY due_at, ledger_id LIMIT 1) AS head, (
        SELECT due_at FROM {schema}.live_events
        WHERE live_events.source = starts.source AND NOT suspect AND due_at > now()
        ORDER BY due_at, ledger_id LIMIT 1) AS next
    FROM starts LEFT JOIN unnest(:holders::text[], :held::int[]) AS holds (source, held)
    USING (source)
), due AS (
    SELECT *, count(*) OVER () AS sources FROM heads WHERE head IS NOT NULL
), taken AS MATERIALIZED (
    SELECT due.head, free.*
    FROM due CROSS JOIN LATERAL (
        SELECT ctid AS tid, ledger_id, due_at, lease_until IS NULL AS pending FROM {schema}.live_events
        WHERE live_events.source = due.source AND NOT suspect
          AND (due_at, ledger_id) > (due.since, due.after)
          AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
        ORDER BY due_at, ledger_id
        LIMIT greatest(least(:limit::int, CASE WHEN due.sources > 1 THEN :share::int
                                               ELSE :alone::int END - due.held), 0)
        FOR UPDATE SKIP LOCKED
    ) AS free
), picked AS MATERIALIZED (
    SELECT tid, pending FROM taken ORDER BY head, due_at, ledger_id LIMIT :limit::int
),
-- here: claiming
SELECT claimed.*, live.due_at, extract(epoch FROM least((SELECT min(next) FROM heads), (
    -- If no event of a source is free, all of its due events are running.
    SELECT min(lease_until) FROM heads CROSS JOIN LATERAL (
        SELECT lease_until FROM {schema}.live_events
        WHERE heads.head IS NULL AND live_events.source = heads.source AND NOT suspect
          AND (due_at, ledger_id) > (since, after) AND due_at <= now()) AS running
)) - now()) AS next_due
FROM (SELECT 1) AS always LEFT JOIN (claimed JOIN live USING (ledger_id)) ON true
ORDER BY live.due_at, claimed.ledger_id

-- name: claim_among
-- Start a run of each of these events that is due.
WITH due AS MATERIALIZED (
    SELECT ctid AS tid, ledger_id, due_at, lease_until IS NULL AS pending FROM {schema}.live_events
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM {schema}.events WHERE id = ANY (:ids::uuid[])))
      AND NOT suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT tid, pending FROM due ORDER BY due_at, ledger_id LIMIT :limit::int
),
-- here: claiming
SELECT claimed.* FROM claimed ORDER BY ledger_id

-- name: suspect
-- Return the next suspect, with the attempts and unsettled runs that its next claim will have.
-- Suspects with the fewest unsettled runs come first. A suspect in its last attempt, which runs with
-- nothing beside it and makes other events wait, therefore comes last.
SELECT id::text, source, event_type,
       attempts + (status <> 'processing' OR unsettled >= 2)::int AS attempts,
       unsettled + (status = 'processing')::int AS unsettled
FROM {schema}.events WHERE ledger_id = (
    SELECT ledger_id FROM {schema}.live_events
    WHERE suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    ORDER BY unsettled + (lease_until IS NOT NULL)::int, due_at, ledger_id LIMIT 1)

-- name: claim_suspect
-- Start a run of this suspect if it is due.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, lease_until IS NULL AS pending FROM {schema}.live_events
    WHERE ledger_id = (SELECT ledger_id FROM {schema}.events WHERE id = :id::uuid)
      AND suspect AND due_at <= now() AND (lease_until IS NULL OR lease_until <= now())
    FOR UPDATE SKIP LOCKED
),
-- here: claiming
SELECT claimed.* FROM claimed

-- name: renew
-- Extend the leases of the claims that are still held, and return them.
WITH ours AS MATERIALIZED (
    SELECT ledger_id FROM {schema}.live_events
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
), free AS MATERIALIZED (
    -- Skip claims whose rows are locked: they are being settled, so their leases need not be extended,
    -- and the other renewals do not wait for them.
    SELECT ledger_id FROM {schema}.live_events
    WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
      AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
    FOR UPDATE SKIP LOCKED
), live AS (
    UPDATE {schema}.live_events SET lease_until = now() + :lease::interval
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM free))
    RETURNING ledger_id
), renewed AS (
    UPDATE {schema}.events SET
        lease_until = now() + :lease::interval, claimable_at = now() + :lease::interval
    WHERE ledger_id = ANY (ARRAY(SELECT ledger_id FROM live))
)
SELECT ledger_id FROM ours

-- name: held
-- Lock the live rows whose claims are still held, and return their runs.
SELECT ledger_id, run FROM {schema}.live_events
WHERE ledger_id = ANY (:rows::bigint[]) AND lease_until IS NOT NULL
  AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]
ORDER BY ledger_id FOR UPDATE

-- name: settled
-- Return the runs among these that are settled, whichever call settled them.
SELECT ledger_id, run, outcome, last_error FROM {schema}.events
WHERE ledger_id = ANY (:rows::bigint[]) AND processor_id IS NULL
  AND run = (:runs::int[])[width_bucket(ledger_id, :rows::bigint[])]

-- name: settle_done
-- Complete events, where the claim is still held.
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
    -- Keep the last ten errors, and the tracebacks of the last three, so that the row stays small.
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
), live_rows AS MATERIALIZED (
    SELECT array_agg(ledger_id ORDER BY ledger_id) AS rows,
           array_agg(due_at ORDER BY ledger_id) AS due
    FROM ours
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'pending', (SELECT count(*) FROM ours))
)

-- name: settle_retry
-- Make the events of failed runs pending again, due after their delay, where the claim is still
-- held.
-- here: postponing
UPDATE {schema}.events SET
    status = 'pending', outcome = 'retry', unsettled = 0, processor_id = NULL, lease_until = NULL,
    retry_after = now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])],
    claimable_at = (SELECT due FROM live_rows)[
        width_bucket(ledger_id, (SELECT live_rows.rows FROM live_rows))],
    -- here: failure
    updated_at = now()
WHERE ledger_id = ANY ((SELECT live_rows.rows FROM live_rows)::bigint[])
RETURNING ledger_id, run

-- name: settle_snooze
-- Make events pending again, due later, and refund the attempt, where the claim is still held.
-- here: postponing
UPDATE {schema}.events SET
    status = 'pending', outcome = 'snoozed', unsettled = 0, attempts = attempts - 1,
    processor_id = NULL, lease_until = NULL,
    retry_after = now() + (:delays::interval[])[width_bucket(ledger_id, :rows::bigint[])],
    claimable_at = (SELECT due FROM live_rows)[
        width_bucket(ledger_id, (SELECT live_rows.rows FROM live_rows))],
    updated_at = now()
WHERE ledger_id = ANY ((SELECT live_rows.rows FROM live_rows)::bigint[])
RETURNING ledger_id, run

-- name: settle_dead
-- Make events dead letters, where the claim is still held.
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
-- Make events pending again and refund the attempt, where the claim is still held. Park the events
-- that are marked as parked.
WITH ours AS (
    UPDATE {schema}.live_events SET
        -- The run did not finish, so a suspect stays a suspect.
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
), live_rows AS MATERIALIZED (
    SELECT array_agg(ledger_id ORDER BY ledger_id) AS rows,
           array_agg(due_at ORDER BY ledger_id) AS due
    FROM ours
), counted AS (
    INSERT INTO {schema}.status_counts SELECT * FROM {schema}.count_move('processing', 'pending', (SELECT count(*) FROM ours))
)
UPDATE {schema}.events SET
    status = 'pending', unsettled = least(unsettled, 2), attempts = attempts - 1,
    outcome = CASE WHEN (:parked::bool[])[width_bucket(ledger_id, :rows::bigint[])] THEN 'parked' END,
    claimable_at = (SELECT due FROM live_rows)[
        width_bucket(ledger_id, (SELECT live_rows.rows FROM live_rows))],
    processor_id = NULL, lease_until = NULL, updated_at = now()
WHERE ledger_id = ANY ((SELECT live_rows.rows FROM live_rows)::bigint[])
RETURNING ledger_id, run
