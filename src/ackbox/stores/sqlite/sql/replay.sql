-- name: replayable
-- Return the columns of these events on which a replay or discard depends.
SELECT ledger_id, events.id, source, idempotency_key, lane, status, outcome,
       coalesce(retry_after > :now, 0) AS waits
FROM json_each(:ids) AS requested JOIN events ON events.id = requested.value

-- name: replayable_parked
-- Return parked events of one source and type, oldest first.
SELECT ledger_id, id, source, idempotency_key, lane, status, outcome, 0 AS waits FROM events
WHERE outcome = 'parked' AND status = 'pending'
  AND source = :source AND event_type = :event_type
ORDER BY ledger_id LIMIT :limit

-- name: replay_replayed
-- Give finished events a new set of attempts. An event in a lane waits for `promote`.
UPDATE events SET
    status = 'pending', outcome = 'replayed', attempts = 0, unsettled = 0, retry_after = :now,
    claimable_at = CASE WHEN lane IS NULL THEN :now END, processed_at = NULL, replayed_at = :now,
    updated_at = :now
WHERE ledger_id IN (SELECT value FROM json_each(:rows))

-- name: replay_expedited
-- Make events that wait for a retry due now.
UPDATE events SET
    retry_after = :now, claimable_at = CASE WHEN lane IS NULL THEN :now END, replayed_at = :now,
    updated_at = :now
WHERE ledger_id IN (SELECT value FROM json_each(:rows))

-- name: replay_unparked
-- Make parked events claimable again.
UPDATE events SET
    outcome = NULL, claimable_at = CASE WHEN lane IS NULL THEN coalesce(retry_after, created_at) END,
    updated_at = :now
WHERE ledger_id IN (SELECT value FROM json_each(:rows))

-- name: discard
-- Complete events as discarded, unless they are running or completed.
UPDATE events SET
    status = 'completed', outcome = 'discarded', unsettled = 0, retry_after = NULL,
    claimable_at = NULL, processed_at = :now, updated_at = :now
WHERE ledger_id IN (SELECT value FROM json_each(:rows)) AND status IN ('pending', 'failed')

-- name: demote
-- Make the oldest event of each lane unclaimable: a replay may put an older event before it.
UPDATE events SET claimable_at = NULL
WHERE status = 'pending' AND ledger_id IN (
    SELECT (
        SELECT head.ledger_id FROM events AS head
        WHERE head.source = entered.value ->> 0 AND head.lane = entered.value ->> 1
          AND head.status IN ('pending', 'processing')
        ORDER BY head.ledger_id LIMIT 1
    ) FROM json_each(:lanes) AS entered)

-- name: note_audit
-- Add entries to the audit log.
INSERT INTO audit (at, actor, peer, action, event_id, detail)
SELECT :now, :actor, :peer, :action, entry.value ->> 0, entry.value ->> 1
FROM json_each(:entries) AS entry
