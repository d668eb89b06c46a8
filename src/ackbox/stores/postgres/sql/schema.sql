-- name: has_migrations_table
SELECT to_regclass(quote_ident(current_schema()) || '.schema_migrations') IS NOT NULL

-- name: applied_migrations
SELECT version, name, checksum FROM schema_migrations ORDER BY version

-- name: server_settings
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
       current_setting('synchronous_commit') AS commits

-- name: missing_rights
SELECT name, quote_ident(current_user) AS role,
       (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('events'))
           AS schema
FROM (
    SELECT name FROM unnest(:tables::text[]) AS name
    WHERE NOT (has_table_privilege(to_regclass(name), 'SELECT')
           AND has_table_privilege(to_regclass(name), 'INSERT')
           AND has_table_privilege(to_regclass(name), 'UPDATE')
           AND has_table_privilege(to_regclass(name), 'DELETE'))
    UNION ALL
    SELECT sequence FROM (VALUES ('events_ledger_id_seq')) AS used (sequence)
    WHERE NOT (has_sequence_privilege(to_regclass(sequence), 'SELECT')
           AND has_sequence_privilege(to_regclass(sequence), 'USAGE'))
) AS missing
ORDER BY name

-- name: building_ground
SELECT coalesce(quote_ident(current_schema()), 'none') AS schema, quote_ident(current_user) AS role,
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_build,
       ARRAY(SELECT name FROM unnest(:tables::text[]) AS name
             WHERE to_regclass(quote_ident(current_schema()) || '.' || name) IS NOT NULL
             ORDER BY name) AS taken
