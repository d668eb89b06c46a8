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
    content_type        TEXT NOT NULL,
    payload_sha256      BLOB NOT NULL,
    headers             TEXT,
    payload             BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_key ON events (source, idempotency_key);
CREATE UNIQUE INDEX events_id ON events (id);

-- Partial: finished rows, nearly all of a grown ledger, cost these indexes nothing.
CREATE INDEX events_pending ON events (ledger_id) WHERE status = 'pending';
CREATE INDEX events_processing ON events (ledger_id) WHERE status = 'processing';
CREATE INDEX events_failed ON events (ledger_id) WHERE status = 'failed';

-- How many rows stand in each state, kept in the transaction that moves them: nothing ever counts
-- ten million finished rows.
CREATE TABLE tallies (
    status TEXT PRIMARY KEY CHECK (status IN ('pending', 'processing', 'completed', 'failed')),
    events INTEGER NOT NULL CHECK (events >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO tallies (status, events)
VALUES ('pending', 0), ('processing', 0), ('completed', 0), ('failed', 0);

-- How far each source has been read, saved with the events read up to there.
CREATE TABLE checkpoints (
    source     TEXT PRIMARY KEY,
    cursor     TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row that the writer touches to prove that writing works.
CREATE TABLE heartbeat (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    beaten_at TEXT NOT NULL
) STRICT;
