-- Events that handlers send with `tx.send`, written in the commit that completes the handler's own event.
-- Each row is soon moved into `events` by `record` and deleted, in one transaction. AUTOINCREMENT keeps
-- the order in which the rows were written. `payload` is the last column, as in `events`.
CREATE TABLE submissions (
    submission_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    source          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    lane            TEXT,
    transport       TEXT NOT NULL,
    parent_id       TEXT,
    content_type    TEXT NOT NULL,
    submitted_at    TEXT NOT NULL,
    payload         BLOB NOT NULL
) STRICT;
