-- The transfer of a SQLite ledger into this database: which file, and the last row transferred.
-- Each batch of rows updates this row in the same commit. While `finished_at` is NULL, no server
-- starts.
CREATE TABLE {schema}.promotion (
    only_row      integer PRIMARY KEY CHECK (only_row = 1),
    file          text NOT NULL,
    identity      text COLLATE "C" NOT NULL,
    current_table text COLLATE "C" NOT NULL,
    last_key      text COLLATE "C" NOT NULL,
    rows          bigint NOT NULL,
    began_at      timestamptz NOT NULL,
    finished_at   timestamptz
);
