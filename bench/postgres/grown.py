"""A ledger with a long history. It is created once and kept in the server's data folder."""

import time
from dataclasses import dataclass

from bench import traffic
from bench.options import Options
from bench.postgres import cluster, contest
from bench.postgres.cluster import Cluster
from bench.postgres.entrants import ACKBOX
from bench.rounds import Progress

LOT = 100_000
DRAFT = "draft"
SCHEMA = "SELECT string_agg(checksum, '-' ORDER BY version) FROM schema_migrations"
FILL = """
INSERT INTO events (
    id, source, idempotency_key, event_type, content_type, payload, payload_json, payload_sha256,
    transport, request_id, status, outcome, attempts, run,
    created_at, updated_at, last_seen_at, processed_at
)
SELECT id, 'webhooks', gen_random_uuid()::text, '{event_type}', 'application/json', payload,
       payload_json, sha256(payload), 'http', id::text, 'completed', 'handled', 1, 1,
       arrival, arrival, arrival, arrival
FROM (SELECT convert_to('{payload}', 'UTF8') AS payload, '{payload}'::jsonb AS payload_json) AS one,
LATERAL (
    SELECT arrival, (
        lpad(to_hex((extract(epoch FROM arrival) * 1000)::bigint), 12, '0') || '7'
        || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15)
    )::uuid AS id
    FROM generate_series({first}, {last}) AS number,
    LATERAL (SELECT now() - ({total} - number) * interval '100 milliseconds' AS arrival) AS at
) AS fresh
"""
COUNT = """DELETE FROM status_counts
INSERT INTO status_counts (status, events) VALUES ('completed', {rows})"""


@dataclass(frozen=True)
class History:
    url: str
    rows: int

    def reset(self) -> None:
        """Delete the rows that a round has added, and vacuum."""
        added = f"WHERE ledger_id > {self.rows}"
        wipes = [f"DELETE FROM {table} {added}" for table in ("live_events", "events")]
        cluster.execute(self.url, *wipes, *COUNT.format(rows=self.rows).splitlines(), "VACUUM")


def database(server: Cluster, rows: int, options: Options, progress: Progress) -> History:
    """Return a ledger with ten events a second under random keys, in order of arrival. Its indexes
    grew row by row, so they are not packed as tightly as new ones."""
    url = server.fresh(DRAFT)
    contest.prepare(ACKBOX, url, options)
    schema = cluster.fetch(url, SCHEMA)[0][0]
    name = f"grown_{rows}_{schema[:12]}"
    if name not in server.databases(name):
        for outdated in server.databases(f"grown_{rows}_"):
            server.drop(outdated)
        progress(f"  a ledger of {rows:,} rows (kept for the next run) ...")
        started = time.monotonic()
        _fill(url, rows)
        server.execute(f'ALTER DATABASE "{DRAFT}" RENAME TO "{name}"')
        progress(f"  made in {time.monotonic() - started:.0f} s")
    return History(server.url(name), rows)


def _fill(url: str, rows: int) -> None:
    cluster.execute(url, f'ALTER DATABASE "{DRAFT}" SET synchronous_commit = off')
    for first in range(1, rows + 1, LOT):
        last = min(first + LOT - 1, rows)
        cluster.execute(url, _lot(first, last, rows))
    cluster.execute(url, f'ALTER DATABASE "{DRAFT}" RESET ALL', "VACUUM ANALYZE", "CHECKPOINT")


def _lot(first: int, last: int, total: int) -> str:
    values = {"event_type": traffic.EVENT_TYPE, "payload": traffic.PAYLOAD}
    return FILL.format(**values, first=first, last=last, total=total)
