-- The payloads of events whose keys their sender does not sign (F47). Within 24 hours, an event of the
-- same source with the same payload is a duplicate of the event with this key.
CREATE TABLE fingerprints (
    source          TEXT NOT NULL,
    payload_sha256  BLOB NOT NULL,
    idempotency_key TEXT NOT NULL,
    recorded_at     TEXT NOT NULL,
    PRIMARY KEY (source, payload_sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX fingerprints_recorded ON fingerprints (recorded_at);

-- The items of each delivery. Partial: only items pay for this index.
CREATE INDEX events_parent ON events (parent_id, ledger_id) WHERE parent_id IS NOT NULL;
