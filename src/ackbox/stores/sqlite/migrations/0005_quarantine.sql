-- Requests that failed verification, kept as they arrived until an operator releases or drops them.
-- AUTOINCREMENT never gives a number twice. `head` is the request without its body, as JSON. `body` is
-- the last column: to reach a column behind a large value, SQLite reads all pages of that value.
CREATE TABLE quarantine (
    quarantine_id INTEGER PRIMARY KEY AUTOINCREMENT,
    source        TEXT NOT NULL,
    reason        TEXT NOT NULL,
    detail        TEXT NOT NULL,
    delivery_id   TEXT,
    received_at   TEXT NOT NULL,
    kept_at       TEXT NOT NULL,
    size          INTEGER NOT NULL,
    head          BLOB NOT NULL,
    body          BLOB NOT NULL
) STRICT;
CREATE INDEX quarantine_kept_at ON quarantine (kept_at);

-- How much of each source is kept. Triggers keep it in the transaction that changes the quarantine, so
-- that keeping a batch does not sum up all rows.
CREATE TABLE quarantine_usage (
    source   TEXT PRIMARY KEY,
    requests INTEGER NOT NULL CHECK (requests >= 0),
    bytes    INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER quarantine_added AFTER INSERT ON quarantine BEGIN
    INSERT INTO quarantine_usage (source, requests, bytes) VALUES (NEW.source, 1, NEW.size)
    ON CONFLICT (source) DO UPDATE SET requests = requests + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER quarantine_removed AFTER DELETE ON quarantine BEGIN
    UPDATE quarantine_usage SET requests = requests - 1, bytes = bytes - OLD.size
    WHERE source = OLD.source;
END;
