-- part: users_path
FROM (
    SELECT coalesce(string_agg(name, ', ' ORDER BY number), '') AS users
    FROM regexp_matches(current_setting('search_path'), '"(?:[^"]|"")*"|[^",\s]+', 'g')
         WITH ORDINALITY AS matches (entries, number),
    LATERAL (
        SELECT CASE WHEN entry LIKE '"%' THEN entry ELSE '"' || lower(entry COLLATE "C") || '"' END AS name
        FROM unnest(entries) AS entry
    ) AS quoted,
    LATERAL (
        SELECT CASE WHEN name = '"$user"' THEN '"' || replace(current_user, '"', '""') || '"'
                    ELSE name END AS schema
    ) AS resolved
    WHERE schema NOT IN ('{schema}', '""')
      AND (name <> '"$user"' OR to_regnamespace(schema) IS NOT NULL)
      AND (SELECT count(*) FROM pg_class
           WHERE relnamespace = to_regnamespace(schema)
             AND relname IN ('schema_migrations', 'live_events', 'write_probe')) < 3
) AS path

-- name: narrow_session_path
-- Take our schema, and those of other ledgers, out of the session's search path, so that users' SQL
-- finds no table of a ledger. If a role has the name of such a schema, the schema is on its path as
-- "$user". An empty entry is dropped, because no SET accepts it. "$user" is also dropped if no
-- schema has the role's name, because a ledger could be created under this name later.
SELECT set_config('search_path', users, false)
-- here: users_path

-- name: narrow_transaction_path
-- Narrow the path as `narrow_session_path` does, but until the end of the transaction, and return
-- it.
SELECT set_config('search_path', users, true) AS search_path
-- here: users_path

-- name: users_path
-- Return the schemas in which users' SQL finds its tables, and the role that has this search path.
-- System schemas are left out, because nobody can create a table in them.
SELECT ARRAY(SELECT name::text FROM unnest(current_schemas(false)) AS name
             WHERE name !~ '^pg_' AND name <> 'information_schema') AS schemas,
       quote_ident(current_user) AS role

-- name: former_name
-- Return the name that the schema had when its functions were created, if it was renamed since: the
-- functions still name the tables by it.
SELECT quote_ident(former) AS former FROM (
    SELECT btrim(substring(prosrc FROM 'INSERT INTO (\S+)\.live_events'), '"') AS former FROM pg_proc
    WHERE oid = to_regproc('{schema}.refresh_live_events')) AS refresh
WHERE former <> btrim('{schema}', '"')

-- name: has_migrations_table
-- Return whether the ledger has been created.
SELECT EXISTS (
    SELECT 1 FROM pg_class
    WHERE relnamespace = to_regnamespace('{schema}') AND relname = 'schema_migrations')

-- name: applied_migrations
-- Return the migrations that the ledger has, oldest first.
SELECT version, name, checksum FROM {schema}.schema_migrations ORDER BY version

-- name: server_settings
-- Return the settings of the server on which durability depends.
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
       current_setting('synchronous_commit') AS commits

-- name: schema_state
-- Return whether our schema exists, what the role may do with it, and which of these tables it has.
-- The catalog is read by name: `to_regclass` fails in a schema that the role may not use.
SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database,
       quote_ident(trim('{schema}', '"')) AS schema,
       found.schema IS NOT NULL AS present,
       has_database_privilege(current_database(), 'CREATE') AS may_create_schema,
       coalesce(has_schema_privilege(found.schema, 'USAGE'), false) AS may_use,
       coalesce(has_schema_privilege(found.schema, 'CREATE'), false) AS may_create_tables,
       ARRAY(SELECT relname::text FROM pg_class
             WHERE relnamespace = found.schema AND relname = ANY (:tables::text[])
             ORDER BY relname) AS taken
FROM (SELECT to_regnamespace('{schema}')::oid AS schema) AS found

-- name: missing_rights
-- Return the tables and sequences of ours on which the role lacks a right that a server needs.
SELECT relname::text AS name, quote_ident(current_user) AS role,
       quote_ident(trim('{schema}', '"')) AS schema
FROM pg_class
WHERE relnamespace = to_regnamespace('{schema}')
  AND (relkind = 'r' AND relname = ANY (:tables::text[])
       AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
                AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
       OR relname = 'events_ledger_id_seq'
       AND NOT (has_sequence_privilege(oid, 'SELECT') AND has_sequence_privilege(oid, 'USAGE')))
ORDER BY name

-- name: lock
-- Wait for this lock, and hold it until the end of the transaction.
SELECT pg_advisory_xact_lock(:key)

-- name: applied_inbox_migrations
-- Return the migrations of users' tables that were applied, with their checksums.
SELECT name, checksum FROM {schema}.inbox_migrations

-- name: add_inbox_migration
-- Record a migration of users' tables, in the transaction that applies it.
INSERT INTO {schema}.inbox_migrations (name, checksum) VALUES (:name, :checksum)
