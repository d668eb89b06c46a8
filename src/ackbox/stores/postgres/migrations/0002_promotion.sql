-- A ledger that is being carried here from a SQLite file: which, and how far. It commits with what
-- was carried; until it is finished, no server starts.
CREATE TABLE promotion (
    only_row    integer PRIMARY KEY CHECK (only_row = 1),
    file        text NOT NULL,
    identity    text NOT NULL,
    carrying    text NOT NULL,
    place       text NOT NULL,
    rows        bigint NOT NULL,
    began_at    timestamptz NOT NULL,
    finished_at timestamptz
);
