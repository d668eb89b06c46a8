-- name: has_books
SELECT to_regclass('schema_migrations') IS NOT NULL

-- name: books
SELECT version, name, checksum FROM schema_migrations ORDER BY version

-- name: server_settings
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
       current_setting('synchronous_commit') AS commits
