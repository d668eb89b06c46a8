-- name: referenced_tables
-- Return the tables that foreign keys of any table refer to.
SELECT lower(refers."table")
FROM sqlite_schema AS made, pragma_foreign_key_list(made.name) AS refers
WHERE made.type = 'table'

-- name: last_ledger_id
-- Return the last `ledger_id` that was assigned. DDL of users must not change it.
SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'

-- name: applied_inbox_migrations
-- Return the migrations of users' tables that were applied, with their checksums.
SELECT name, checksum FROM inbox_migrations

-- name: add_inbox_migration
-- Record a migration of users' tables, in the transaction that applies it.
INSERT INTO inbox_migrations (name, checksum, applied_at) VALUES (:name, :checksum, :now)
