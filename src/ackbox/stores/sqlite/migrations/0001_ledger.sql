-- The ledger. AUTOINCREMENT: a number is never given twice, whatever was pruned. `payload` stands last: SQLite walks a large value's overflow pages to reach any column
-- behind it. Times are text of fixed width, so that text order is time order (W9).
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

-- What can be claimed, and when: due, or its lease over. Finished, held and behind in a lane: NULL.
-- Suspects, whose next claim would be their third or later in a row without a settle, have an index
-- of their own: an ordinary claim does not meet them.
CREATE INDEX events_claimable ON events (source, claimable_at, ledger_id)
WHERE claimable_at IS NOT NULL AND unsettled + (status = 'processing') < 2;
CREATE INDEX events_suspect ON events (claimable_at, ledger_id)
WHERE unsettled + (status = 'processing') >= 2;
CREATE INDEX events_lane ON events (source, lane, ledger_id)
WHERE lane IS NOT NULL AND status IN ('pending', 'processing');

CREATE INDEX events_parked ON events (source, event_type, ledger_id)
WHERE outcome = 'parked' AND status = 'pending';

-- Only of those that came with a number or a time of their source's: others pay nothing (L7).
CREATE INDEX events_source_order ON events (
    source, coalesce(source_sequence, 9223372036854775807), coalesce(source_emitted_at, '~'), ledger_id)
WHERE source_sequence IS NOT NULL OR source_emitted_at IS NOT NULL;

-- Partial: finished rows, nearly all of a grown ledger, cost these indexes nothing.
CREATE INDEX events_pending ON events (ledger_id) WHERE status = 'pending';
CREATE INDEX events_processing ON events (ledger_id) WHERE status = 'processing';
CREATE INDEX events_failed ON events (ledger_id) WHERE status = 'failed';

-- How many rows stand in each state, kept in the transaction that moves them: nothing ever counts
-- ten million finished rows.
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

-- How far each source has been read, saved with the events read up to there.
CREATE TABLE cursors (
    source     TEXT PRIMARY KEY,
    cursor     TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What outlives a pruned event: enough to know its key again, and to answer its sender. While
-- `ledger_id` is set the event is still there.
CREATE TABLE tombstones (
    source          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    id              TEXT NOT NULL,
    status          TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    payload_sha256  BLOB NOT NULL,
    tombstoned_at       TEXT NOT NULL,
    ledger_id       INTEGER,
    PRIMARY KEY (source, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_open ON tombstones (tombstoned_at) WHERE ledger_id IS NOT NULL;
CREATE INDEX tombstones_closed ON tombstones (tombstoned_at) WHERE ledger_id IS NULL;

-- What operators did: `actor` is who the caller says it is, `peer` the address it called from.
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

-- One row that the writer touches to prove that writing works.
CREATE TABLE write_probe (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    probed_at TEXT NOT NULL
) STRICT;
