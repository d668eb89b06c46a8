"""Plan guards: the cost of a named SQL block does not depend on the size of the ledger (W9)."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.model import Content, EventFilter, EventId, EventKey, Order, RetentionPolicy, Status
from ackbox.stores.sqlite.connections import open_reader
from ackbox.stores.sqlite.migrations import all_migrations, apply
from ackbox.stores.sqlite.read import reader_connections
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.statements import blocks
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.sqlite.write.record import _widen
from support.ledgers.backends import open_sqlite
from support.ledgers.events import NOON, envelope, envelopes, noon, record_in

BLOCKS = blocks()

UNBOUNDED = {
    "recount": "counts every row: `ackbox doctor --deep` only",
    "export_counts": "counts every row: `ackbox promote` only",
    "export_state": "reads every row: `ackbox promote` only",
    "end_leases": "touches the events that ran when a process died: no more than its workers held",
    "has_future_rows": "once per start: reads leases, retries and a thousand pending rows",
}
SCANS = {  # the only allowed scan of each: it ends after the first row, or has four rows
    "newest_created": "SCAN events",
    "newest_time": "SCAN events",
    "oldest_submission": "SCAN submissions",
    "oldest_pending": "SCAN events USING INDEX events_pending",
    "status_counts": "SCAN status_counts",
}
TABLES = "submissions|events|cursors|status_counts|write_probe|tombstones|audit|fingerprints"


@pytest.fixture(scope="module")
def schema() -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(":memory:")) as connection:
        apply(connection, all_migrations())
        yield connection


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    names = dict.fromkeys(re.findall(r":(\w+)", sql))
    values: Any = names or (None,) * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def scans(lines: list[str]) -> list[str]:
    return [line for line in lines if re.match(rf"SCAN ({TABLES})\b", line)]


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - set(SCANS) - set(UNBOUNDED)))
def test_a_block_scans_no_table(schema: apsw.Connection, name: str) -> None:
    assert scans(plan(schema, BLOCKS[name])) == []


@pytest.mark.parametrize("name", sorted(SCANS))
def test_a_block_that_scans_stops_at_the_first_row(schema: apsw.Connection, name: str) -> None:
    lines = plan(schema, BLOCKS[name])
    assert lines == [SCANS[name]]  # and sorts nothing
    assert name == "status_counts" or BLOCKS[name].endswith("LIMIT 1")


def test_the_exemptions_name_blocks_that_exist() -> None:
    assert set(UNBOUNDED) | set(SCANS) <= set(BLOCKS)


def test_a_guard_sees_a_scan_when_there_is_one(schema: apsw.Connection) -> None:
    assert scans(plan(schema, "SELECT id FROM events WHERE event_type = :event_type"))
    assert scans(plan(schema, BLOCKS["recount"]))


@pytest.mark.parametrize("rows", [1, 2, 128])
def test_the_widened_insert_scans_no_table(schema: apsw.Connection, rows: int) -> None:
    sql = _widen(BLOCKS["record"], rows)
    assert sql.count("?") == BLOCKS["record"].count("?") * rows
    assert scans(plan(schema, sql)) == []


def test_the_claim_and_clean_up_have_their_partial_indexes(schema: apsw.Connection) -> None:  # W9
    for status in (Status.PENDING, Status.PROCESSING, Status.FAILED):
        sql = f"SELECT ledger_id FROM events WHERE status = '{status}' ORDER BY ledger_id LIMIT 9"
        assert plan(schema, sql) == [f"SCAN events USING COVERING INDEX events_{status}"]


# L7
def test_a_cursor_in_the_order_of_a_source_is_found_by_its_index(schema: apsw.Connection) -> None:
    lines = [line for line in plan(schema, BLOCKS["events_of_source"]) if "source_order" in line]
    assert len(lines) == 3
    assert all(line.startswith("SEARCH events USING INDEX events_source_order") for line in lines)
    assert not any("TEMP B-TREE" in line for line in lines)


# N14
def test_old_dead_letters_are_found_by_their_own_index(schema: apsw.Connection) -> None:
    lines = plan(schema, BLOCKS["old_events_failed"])
    assert any("INDEX events_failed" in line for line in lines), lines
    assert not any("TEMP B-TREE" in line for line in lines)


def test_prunable_events_and_old_tombstones_are_found_by_their_age(
    schema: apsw.Connection,
) -> None:  # F36
    (prunable,) = [line for line in plan(schema, BLOCKS["prunable"]) if "SEARCH tombstones" in line]
    assert "tombstones_open" in prunable
    assert any("tombstones_closed" in line for line in plan(schema, BLOCKS["purge_tombstones"]))


@pytest.mark.parametrize("block", ["events_newest", "events_oldest", "adopt_items"])
def test_the_items_of_a_delivery_are_found_by_their_index(
    schema: apsw.Connection, block: str
) -> None:
    (line,) = [line for line in plan(schema, BLOCKS[block]) if "events_parent" in line]
    assert line.startswith("SEARCH events USING")
    assert "parent_id=?" in line


def test_expired_fingerprints_are_found_by_their_age(schema: apsw.Connection) -> None:  # F47
    lines = plan(schema, BLOCKS["prune_fingerprints"])
    assert any("fingerprints_recorded (recorded_at<?)" in line for line in lines), lines


class Steps(Counter[str]):
    """The steps of SQLite's virtual machine, counted by statement."""

    def attach(self, connection: apsw.Connection) -> apsw.Connection:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)
        return connection

    def _note(self, event: dict[str, Any]) -> None:
        self[event["sql"]] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@asynccontextmanager
async def ledger_of(
    rows: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SqliteStore, SqliteReader, Steps]]:
    """Yield a ledger with so many completed events, and ten of each other status after them."""
    store = await open_sqlite(path, durability="normal")
    await store._writer.submit(lambda c: _grow(c, rows))
    steps = Steps()
    monkeypatch.setattr(
        reader_connections, "open_reader", lambda p, vfs: steps.attach(open_reader(p))
    )
    reader = SqliteReader(path)
    await store._writer.submit(steps.attach, outside_transaction=True)
    yield store, reader, steps
    await reader.close()
    await store.close()


GROW = """
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :rows + 30)
INSERT INTO events (id, source, idempotency_key, event_type, status, transport, created_at,
    updated_at, last_seen_at, content_type, payload_sha256, payload)
SELECT printf('%036d', n), 'webhooks', 'old-' || n, 'webhook',
    CASE WHEN n <= :rows THEN 'completed' WHEN n % 3 = 0 THEN 'pending'
         WHEN n % 3 = 1 THEN 'processing' ELSE 'failed' END,
    'http', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z',
    '2026-01-01T00:00:00.000000Z', 'application/json', x'00', x'00'
FROM n
"""
RECOUNT = """
UPDATE status_counts SET events = (
    SELECT count(*) FROM events WHERE events.status = status_counts.status)
"""


def _grow(connection: apsw.Connection, rows: int) -> None:
    connection.execute(GROW, {"rows": rows})
    connection.execute(RECOUNT)


async def record_one(store: SqliteStore, reader: SqliteReader) -> None:
    await record_in(store, [envelope("new one")])


async def record_many(store: SqliteStore, reader: SqliteReader) -> None:
    await record_in(store, envelopes(300))


async def record_known(store: SqliteStore, reader: SqliteReader) -> None:
    await record_in(store, [envelope(f"old-{n}") for n in range(1, 300)])


async def look_up(store: SqliteStore, reader: SqliteReader) -> None:
    event = await reader.event(EventKey("webhooks", "old-7"))
    assert event is not None
    assert await reader.event(event.id) == event
    assert await reader.content(EventId(event.id)) == Content(b"\0", None)


async def stats(store: SqliteStore, reader: SqliteReader) -> None:
    assert (await reader.stats(noon())).counts[Status.FAILED] == 10


def listing(where: EventFilter, order: Order) -> Callable[..., Awaitable[None]]:
    async def read(store: SqliteStore, reader: SqliteReader) -> None:
        await reader.events(where, order=order, limit=50)

    read.__name__ = (
        f"list-{order}-{where.status or where.source or where.since or where.event_type or 'all'}"
    )
    return read


POLICY = RetentionPolicy(keep=timedelta(days=1), keep_keys=timedelta(days=1))


async def run_retention(store: SqliteStore, reader: SqliteReader) -> None:
    assert (await store.add_tombstones(POLICY, Status.COMPLETED, after=5000)).next is not None
    await store.add_tombstones(POLICY, Status.FAILED, after=0)
    await store.prune(POLICY)
    await store.purge(POLICY)


async def replay_some(store: SqliteStore, reader: SqliteReader) -> None:
    await store.replay([EventId(f"{n:036}") for n in range(1, 50)], actor="tester")


async def read_detail(store: SqliteStore, reader: SqliteReader) -> None:
    assert await reader.detail(EventId(f"{7:036}")) is not None
    assert await reader.parked_type(("", "")) is None
    await reader.audit(limit=10)


async def list_a_source(store: SqliteStore, reader: SqliteReader) -> None:
    await reader.events_of_source(EventFilter(source="webhooks"), limit=50)


LISTS = [
    listing(where, order)
    for order in Order
    for where in [
        EventFilter(),
        *[EventFilter(status=status) for status in Status],
        EventFilter(source="nobody"),
        EventFilter(event_type="nobody.*"),
        EventFilter(source="webhooks", skip_completed=True),
        EventFilter(since=NOON + timedelta(days=9)),
    ]
]
WORK = [
    *[record_one, record_many, record_known, look_up, stats],
    *[read_detail, list_a_source, *LISTS, run_retention, replay_some],
]


async def test_no_work_takes_longer_on_a_grown_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # W9, L13
    """The cost is counted in steps of the virtual machine, not in time."""
    taken: dict[int, dict[str, int]] = {}
    for rows in (12_000, 50_000):
        path = tmp_path / f"{rows}.db"
        async with ledger_of(rows, path, monkeypatch) as (store, reader, steps):
            taken[rows] = {}
            for work in WORK:
                steps.clear()
                await work(store, reader)
                taken[rows][work.__name__] = steps.total()
    small, large = taken.values()
    assert min(small.values()) > 0
    grown = {name: (small[name], n) for name, n in large.items() if n > small[name] * 1.05 + 50}
    assert grown == {}
    assert large["stats"] < 100
