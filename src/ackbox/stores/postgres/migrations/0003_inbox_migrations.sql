-- The migrations of users' own tables that were applied (`inbox.migration`).
CREATE TABLE {schema}.inbox_migrations (
    name       text COLLATE "C" PRIMARY KEY,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
