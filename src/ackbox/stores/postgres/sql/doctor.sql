-- name: condition
-- Return the settings and the state of the server that `ackbox doctor` judges.
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standbys,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS autovacuum,
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int AS connections_allowed,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       (SELECT count(*) FROM pg_stat_replication) AS replicas,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only') = 'on' AS read_only,
       quote_ident(current_database()) AS database,
       clock_timestamp() AS clock

-- name: long_transactions
-- Return the transactions that have been open for longer than this, oldest first.
SELECT pid, coalesce(state, 'unknown') AS state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND pid <> pg_backend_pid() AND clock_timestamp() - xact_start > :longer_than::interval
ORDER BY xact_start LIMIT 5

-- name: vacuumed
-- Return whether autovacuum is off for the table events, and its dead and live rows.
SELECT coalesce('autovacuum_enabled=false' = ANY (reloptions), false) AS switched_off,
       coalesce(pg_stat_get_dead_tuples(oid), 0) AS dead,
       coalesce(pg_stat_get_live_tuples(oid), 0) AS live
FROM pg_class WHERE oid = to_regclass('{schema}.events')

-- name: count_parked
-- Count parked events, but no more than the limit.
SELECT count(*) FROM (
    SELECT 1 FROM {schema}.live_events WHERE parked LIMIT :limit) AS parked

-- name: recount
-- Return the kept count and the real count of each status, and of the live rows.
-- PostgreSQL keeps several rows per status, so that instances do not wait for the same row. So sum
-- the rows first.
SELECT coalesce(kept.status, counted.status) AS status,
       coalesce(kept.events, 0) AS kept, coalesce(counted.events, 0) AS counted
FROM (SELECT status, sum(events)::bigint AS events FROM {schema}.status_counts GROUP BY status) AS kept
FULL JOIN (SELECT status, count(*) AS events FROM {schema}.events GROUP BY status) AS counted
    USING (status)
UNION ALL
SELECT 'live_events', (SELECT count(*) FROM {schema}.live_events), (
    -- Pending, processing and failed events whose live row agrees with them.
    SELECT count(*) FROM {schema}.events LEFT JOIN {schema}.live_events USING (ledger_id)
    WHERE events.status <> 'completed'
      AND (live_events.run, live_events.lease_until, live_events.failed) IS NOT DISTINCT FROM
          (events.run, events.lease_until, events.status = 'failed'))
ORDER BY 1
