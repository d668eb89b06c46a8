-- name: claimable
-- Return, for each source with claimable events, the earliest time and the rows that are due now.
-- Only one process writes, so `claim` can follow as a separate statement. PostgreSQL selects, locks
-- and claims in one statement.
-- The recursive part jumps from source to source in the index; GROUP BY would read every row.
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
SELECT json_group_array(json_array(
    source,
    (SELECT min(claimable_at) FROM events
     WHERE events.source = sources.source
       AND claimable_at IS NOT NULL AND unsettled + (status = 'processing') < 2),
    json((SELECT json_group_array(ledger_id) FROM (
        SELECT ledger_id FROM events
        WHERE events.source = sources.source
          AND claimable_at <= :now AND unsettled + (status = 'processing') < 2
        ORDER BY claimable_at, ledger_id LIMIT :limit)))))
FROM sources WHERE source IS NOT NULL

-- name: claimable_among
-- Return the row numbers of these events that are due.
SELECT json_group_array(ledger_id) FROM (
    SELECT ledger_id FROM json_each(:ids) AS requested
    JOIN events ON events.id = requested.value
    WHERE claimable_at <= :now AND unsettled + (status = 'processing') < 2
    ORDER BY claimable_at, ledger_id LIMIT :limit)

-- name: suspect
-- Return the next suspect, with the attempts and unsettled runs that its next claim will have.
-- Suspects with the fewest unsettled runs come first. A suspect in its last attempt, which runs with
-- nothing beside it and makes other events wait, therefore comes last.
SELECT id, source, event_type,
       attempts + (status <> 'processing' OR unsettled >= 2) AS attempts,
       unsettled + (status = 'processing') AS unsettled
FROM events
WHERE unsettled + (status = 'processing') >= 2 AND claimable_at <= :now
ORDER BY events.unsettled + (status = 'processing'), claimable_at, ledger_id LIMIT 1

-- name: claimable_suspect
-- Return the row of this suspect if it is due.
SELECT json_group_array(ledger_id) FROM events
WHERE id = :id AND claimable_at <= :now AND unsettled + (status = 'processing') >= 2

-- name: claim
-- Start a run of each of these events under a lease. PostgreSQL also selects the events here.
-- Taking over an expired lease spends no attempt, unless the lost run was already the run of a
-- suspect (`unsettled` was 2 or more).
UPDATE events SET
    status = 'processing',
    run = run + 1,
    attempts = attempts + (status <> 'processing' OR unsettled >= 2),
    unsettled = unsettled + (status = 'processing'),
    processor_id = :worker,
    lease_until = :lease_until,
    claimable_at = :lease_until,
    updated_at = :now
WHERE ledger_id IN (SELECT value FROM json_each(:selected))

-- name: claimed
-- Return the claimed events, with payloads up to the inline limit.
SELECT json_group_array(json_array(
    -- here: claim_columns
))
FROM json_each(:selected) AS selected JOIN events ON ledger_id = selected.value

-- name: large_payload
-- Return one payload that was too large for `claimed`.
SELECT payload FROM events WHERE ledger_id = :ledger_id

-- name: renew
-- Extend the leases of the claims that are still held.
-- PostgreSQL skips rows that another transaction has locked; here there is only one writer.
UPDATE events SET lease_until = :lease_until, claimable_at = :lease_until
FROM json_each(:claims) AS held
WHERE ledger_id = held.value ->> 0 AND run = held.value ->> 1 AND status = 'processing'

-- name: held
-- Return the rows whose claims are still held. PostgreSQL also locks them.
SELECT json_group_array(ledger_id) FROM json_each(:claims) AS held
JOIN events ON ledger_id = held.value ->> 0
WHERE run = held.value ->> 1 AND status = 'processing'

-- name: settled
-- Return the runs among these that are settled, whichever call settled them.
SELECT json_group_array(json_array(ledger_id, run)) FROM json_each(:claims) AS requested
JOIN events ON ledger_id = requested.value ->> 0
WHERE run = requested.value ->> 1 AND status <> 'processing'

-- name: settle_done
-- Complete events, where the claim is still held.
UPDATE events SET
    status = 'completed', outcome = settled.value ->> 2, unsettled = 0, retry_after = NULL,
    processor_id = NULL, lease_until = NULL, claimable_at = NULL,
    processed_at = :now, updated_at = :now
FROM json_each(:settled) AS settled
WHERE ledger_id = settled.value ->> 0 AND run = settled.value ->> 1 AND status = 'processing'

-- part: failure
    last_error = settled.value ->> 3, error_code = settled.value ->> 4,
    errors = json_insert(
        -- Keep ten errors, and the tracebacks of the last three, so that the row stays small.
        CASE WHEN json_array_length(coalesce(errors, '[]')) < 10
             THEN json_remove(coalesce(errors, '[]'), '$[#-3].traceback')
             ELSE json_remove(errors, '$[#-3].traceback', '$[0]') END,
        '$[#]', json(settled.value ->> 5)),

-- name: settle_retry
-- Make the events of failed runs pending again, due after their delay, where the claim is still
-- held. An event behind an older event of its lane stays unclaimable until `promote`.
UPDATE events SET
    status = 'pending', outcome = 'retry', unsettled = 0, retry_after = settled.value ->> 2,
    claimable_at = CASE WHEN lane IS NULL OR NOT EXISTS (
        SELECT 1 FROM events AS older
        WHERE older.source = events.source AND older.lane = events.lane
          AND older.status IN ('pending', 'processing')
          AND older.ledger_id < events.ledger_id) THEN settled.value ->> 2 END,
    processor_id = NULL, lease_until = NULL,
    -- here: failure
    updated_at = :now
FROM json_each(:settled) AS settled
WHERE ledger_id = settled.value ->> 0 AND run = settled.value ->> 1 AND status = 'processing'

-- name: settle_snooze
-- Make events pending again, due later, and refund the attempt, where the claim is still held.
UPDATE events SET
    status = 'pending', outcome = 'snoozed', unsettled = 0, attempts = attempts - 1,
    retry_after = settled.value ->> 2,
    claimable_at = CASE WHEN lane IS NULL OR NOT EXISTS (
        SELECT 1 FROM events AS older
        WHERE older.source = events.source AND older.lane = events.lane
          AND older.status IN ('pending', 'processing')
          AND older.ledger_id < events.ledger_id) THEN settled.value ->> 2 END,
    processor_id = NULL, lease_until = NULL, updated_at = :now
FROM json_each(:settled) AS settled
WHERE ledger_id = settled.value ->> 0 AND run = settled.value ->> 1 AND status = 'processing'

-- name: settle_dead
-- Make events dead letters, where the claim is still held.
UPDATE events SET
    status = 'failed', outcome = 'dead', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processor_id = NULL, lease_until = NULL,
    -- here: failure
    processed_at = :now, updated_at = :now
FROM json_each(:settled) AS settled
WHERE ledger_id = settled.value ->> 0 AND run = settled.value ->> 1 AND status = 'processing'

-- name: settle_release
-- Make events pending again and refund the attempt, where the claim is still held. Park the events
-- that are marked as parked.
UPDATE events SET
    status = 'pending', outcome = settled.value ->> 2, attempts = attempts - 1,
    unsettled = min(unsettled, 2),  -- the run did not end by itself: a suspect stays a suspect
    claimable_at = CASE WHEN settled.value ->> 2 IS NOT 'parked' AND (lane IS NULL OR NOT EXISTS (
        SELECT 1 FROM events AS older
        WHERE older.source = events.source AND older.lane = events.lane
          AND older.status IN ('pending', 'processing')
          AND older.ledger_id < events.ledger_id))
        THEN coalesce(settled.value ->> 3, retry_after, created_at) END,
    processor_id = NULL, lease_until = NULL, updated_at = :now
FROM json_each(:settled) AS settled
WHERE ledger_id = settled.value ->> 0 AND run = settled.value ->> 1 AND status = 'processing'

-- name: promote
-- Make the oldest event of each lane claimable, unless an event of that lane is running.
-- PostgreSQL has a row for each lane, in order to lock it. SQLite has one writer and needs no such
-- row.
UPDATE events SET claimable_at = coalesce(retry_after, created_at)
WHERE status = 'pending' AND claimable_at IS NULL AND outcome IS NOT 'parked' AND ledger_id IN (
    SELECT (
        SELECT head.ledger_id FROM events AS head
        WHERE head.source = freed.value ->> 0 AND head.lane = freed.value ->> 1
          AND head.status IN ('pending', 'processing')
        ORDER BY head.ledger_id LIMIT 1
    ) FROM json_each(:lanes) AS freed
    WHERE NOT EXISTS (
        SELECT 1 FROM events AS running
        WHERE running.status = 'processing'
          AND running.source = freed.value ->> 0 AND running.lane = freed.value ->> 1)
)

-- name: end_leases
-- End every lease now. SQLite only: the process that held them is gone, because this process has
-- the lock.
UPDATE events SET
    lease_until = :now, claimable_at = :now, updated_at = min(updated_at, :now),
    retry_after = CASE WHEN updated_at > :now THEN :now ELSE retry_after END
WHERE status = 'processing'
