-- The ledger. AUTOINCREMENT never gives a number twice, even after the newest rows were pruned.
-- `payload` is the last column: to reach a column behind a large value, SQLite reads all overflow
-- pages of that value. Times are text of fixed width, so that text order is time order (W9).
CREATE TABLE events (
    ledger_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    id                  TEXT NOT NULL,
    source              TEXT NOT NULL,
    idempotency_key     TEXT NOT NULL,
    event_type          TEXT NOT NULL,
    status              TEXT NOT NULL DEFAULT 'pending'
                        CHECK (status IN ('pending', 'processing', 'completed', 'failed')),
    outcome             TEXT,
    attempts            INTEGER NOT NULL DEFAULT 0,
    run                 INTEGER NOT NULL DEFAULT 0,
    unsettled           INTEGER NOT NULL DEFAULT 0,
    last_error          TEXT,
    error_code          TEXT,
    errors              TEXT,
    retry_after         TEXT,
    processor_id        TEXT,
    lease_until         TEXT,
    claimable_at        TEXT,
    ingest_count        INTEGER NOT NULL DEFAULT 1,
    conflict_count      INTEGER NOT NULL DEFAULT 0,
    source_sequence     INTEGER,
    source_emitted_at   TEXT,
    lane                TEXT,
    channel             TEXT,
    sender              TEXT,
    recipient           TEXT,
    provider_message_id TEXT,
    transport           TEXT NOT NULL,
    verified_by         TEXT,
    request_id          TEXT,
    trace               TEXT,
    created_at          TEXT NOT NULL,
    updated_at          TEXT NOT NULL,
    last_seen_at        TEXT NOT NULL,
    processed_at        TEXT,
    replayed_at         TEXT,
    content_type        TEXT NOT NULL,
    payload_sha256      BLOB NOT NULL,
    headers             TEXT,
    payload             BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_key ON events (source, idempotency_key);
CREATE UNIQUE INDEX events_id ON events (id);

-- `claimable_at` is when an event can be claimed: when it is due, or when its lease expires. It is NULL
-- for events that are finished, parked or behind another event of their lane. A suspect is an event
-- whose last two runs or more ended without a settlement. Suspects have an index of their own, so that
-- an ordinary claim never reads them.
CREATE INDEX events_claimable ON events (source, claimable_at, ledger_id)
WHERE claimable_at IS NOT NULL AND unsettled + (status = 'processing') < 2;
CREATE INDEX events_suspect ON events (claimable_at, ledger_id)
WHERE unsettled + (status = 'processing') >= 2;
CREATE INDEX events_lane ON events (source, lane, ledger_id)
WHERE lane IS NOT NULL AND status IN ('pending', 'processing');

CREATE INDEX events_parked ON events (source, event_type, ledger_id)
WHERE outcome = 'parked' AND status = 'pending';

-- Partial: only events with a sequence number or a time from their source pay for this index (L7).
CREATE INDEX events_source_order ON events (
    source, coalesce(source_sequence, 9223372036854775807), coalesce(source_emitted_at, '~'), ledger_id)
WHERE source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL;

-- Partial: completed events are nearly all of a large ledger, and are in none of these indexes.
CREATE INDEX events_pending ON events (ledger_id) WHERE status = 'pending';
CREATE INDEX events_processing ON events (ledger_id) WHERE status = 'processing';
CREATE INDEX events_failed ON events (ledger_id) WHERE status = 'failed';

-- The number of events in each status. Triggers keep it in the transaction that changes a status, so
-- that no query ever counts ten million completed rows.
CREATE TABLE status_counts (
    status TEXT PRIMARY KEY CHECK (status IN ('pending', 'processing', 'completed', 'failed')),
    events INTEGER NOT NULL CHECK (events >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO status_counts (status, events)
VALUES ('pending', 0), ('processing', 0), ('completed', 0), ('failed', 0);
CREATE TRIGGER events_counted AFTER INSERT ON events BEGIN
    UPDATE status_counts SET events = events + 1 WHERE status = NEW.status;
END;
CREATE TRIGGER events_moved AFTER UPDATE OF status ON events WHEN OLD.status <> NEW.status BEGIN
    UPDATE status_counts SET events = events - 1 WHERE status = OLD.status;
    UPDATE status_counts SET events = events + 1 WHERE status = NEW.status;
END;
CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN
    UPDATE status_counts SET events = events - 1 WHERE status = OLD.status;
END;

-- How far each source has been read, saved in the transaction that records the events up to there.
CREATE TABLE cursors (
    source     TEXT PRIMARY KEY,
    cursor     TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What remains of a pruned event: enough to recognize its key and to respond to its sender. While
-- `ledger_id` is set, the event itself still exists.
CREATE TABLE tombstones (
    source          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    id              TEXT NOT NULL,
    status          TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    payload_sha256  BLOB NOT NULL,
    tombstoned_at   TEXT NOT NULL,
    ledger_id       INTEGER,
    PRIMARY KEY (source, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_open ON tombstones (tombstoned_at) WHERE ledger_id IS NOT NULL;
CREATE INDEX tombstones_closed ON tombstones (tombstoned_at) WHERE ledger_id IS NULL;

-- The actions of operators. `actor` is the name that the caller gave, `peer` the address it called from.
CREATE TABLE audit (
    audit_id INTEGER PRIMARY KEY,
    at       TEXT NOT NULL,
    actor    TEXT NOT NULL,
    peer     TEXT,
    action   TEXT NOT NULL,
    event_id TEXT,
    detail   TEXT NOT NULL
) STRICT;
CREATE INDEX audit_event ON audit (event_id, audit_id) WHERE event_id IS NOT NULL;
CREATE INDEX audit_at ON audit (at);

-- A single row that the writer overwrites to prove that writing works.
CREATE TABLE write_probe (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    probed_at TEXT NOT NULL
) STRICT;
