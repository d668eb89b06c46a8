-- The payloads of events whose keys their sender does not sign (F47). Within 24 hours, an event of the
-- same source with the same payload is a duplicate of the event with this key.
CREATE TABLE {schema}.fingerprints (
    source          text COLLATE "C" NOT NULL,
    payload_sha256  bytea NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    recorded_at     timestamptz NOT NULL,
    PRIMARY KEY (source, payload_sha256)
);
CREATE INDEX fingerprints_recorded ON {schema}.fingerprints (recorded_at);

-- The items of each delivery. Partial: only items pay for this index.
CREATE INDEX events_parent ON {schema}.events (parent_id, ledger_id) WHERE parent_id IS NOT NULL;
