-- The migrations of users' own tables that were applied (`inbox.migration`).
CREATE TABLE inbox_migrations (
    name       TEXT PRIMARY KEY,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
