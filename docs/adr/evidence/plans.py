"""ADR 6: the plans of the reader's queries, on the schema as it is, and with one index on
(status, created_at) in place of the partial ones."""
# ruff: noqa: T201

import apsw

from ackbox.stores.sqlite import migrations

QUERIES = {
    "one status by arrival": """SELECT ledger_id FROM events
        WHERE status = 'pending' AND ledger_id < 9 ORDER BY ledger_id DESC LIMIT 50""",
    "oldest pending": """SELECT created_at FROM events
        WHERE status = 'pending' ORDER BY ledger_id LIMIT 1""",
    "no filter": """SELECT ledger_id FROM events
        WHERE ledger_id < 9 ORDER BY ledger_id DESC LIMIT 50""",
    "one status by time": """SELECT ledger_id FROM events
        WHERE status = 'pending' ORDER BY created_at DESC LIMIT 50""",
}
COMPLETED = """WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO events (id, source, idempotency_key, event_type, status, transport, created_at,
                        updated_at, last_seen_at, content_type, payload_sha256, payload)
    SELECT i, '', i, '', 'completed', '', format('2026-01-01T00:00:%09.6fZ', i / 1e4), '', '', '',
           x'', x'' FROM n"""


def main() -> None:
    connection = apsw.Connection(":memory:")
    migrations.apply(connection, migrations.all_migrations())
    connection.execute(COMPLETED)
    print("partial indexes")
    show_plans(connection)
    partial = cost_of_dropping(connection, "events_pending", "events_processing", "events_failed")
    print("one index on (status, created_at)")
    connection.execute("CREATE INDEX by_status ON events (status, created_at)")
    show_plans(connection)
    whole = cost_of_dropping(connection, "by_status")
    print(f"pages for 100000 completed rows: {partial} and {whole}")


def show_plans(connection: apsw.Connection) -> None:
    for name, query in QUERIES.items():
        steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        print(f"  {name}: {'; '.join(steps)}")


def cost_of_dropping(connection: apsw.Connection, *indexes: str) -> int:
    before = free_pages(connection)
    for index in indexes:
        connection.execute(f"DROP INDEX {index}")
    return free_pages(connection) - before


def free_pages(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("freelist_count")))


if __name__ == "__main__":
    main()
