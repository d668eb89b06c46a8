"""Plan guards on PostgreSQL: the cost of a hot block does not depend on rows that it cannot use."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ackbox.app import utc_now
from ackbox.model import EventFilter, EventId, Order, Status
from ackbox.stores.paging import bounds, terms
from ackbox.stores.postgres.database import (
    USERS_PLANS,
    Address,
    Connection,
    set_locally,
)
from ackbox.stores.postgres.statements import blocks
from ackbox.stores.postgres.store import open_store
from ackbox.telemetry import ignore_facts
from support.databases.postgres import find_installs
from support.ledgers.backends import BACKENDS, Server
from support.ledgers.events import envelope, record_in
from support.ledgers.postgres_backend import REBUILD_DERIVED, PostgresBackend, connect_for_tests

ROWS = 40_000
GROW = """
INSERT INTO events (id, source, idempotency_key, event_type, status, lane, claimable_at, transport,
    created_at, updated_at, last_seen_at, processed_at, content_type, payload_sha256, payload)
SELECT gen_random_uuid(), $1, $2 || n, 'webhook', $3, $4,
    CASE WHEN $3 <> 'pending' THEN NULL
         WHEN $4::text IS NULL THEN timestamptz '2026-01-01'
         WHEN n = 1 THEN timestamptz '2030-01-01' END,
    'http', timestamptz '2026-01-01', timestamptz '2026-01-01', timestamptz '2026-01-01',
    timestamptz '2026-01-01', 'application/json', '\\x00', '\\x00'
FROM generate_series(1, $5::int) AS n
"""
SUBMIT = """
INSERT INTO submissions (
    submitted_at, source, idempotency_key, event_type, lane, transport, content_type, payload)
SELECT now(), 'app', n::text, 'webhook', CASE WHEN n % 2 = 0 THEN 'lane' END, 'sql', 'text', ''
FROM generate_series(1, $1::int) AS n
"""
CLAIM: dict[str, Any] = {
    "full_scan": True,
    "sources": [],
    "since": [],
    "after": [],
    "holders": ["capped"],
    "held": [10],
    "share": 10,
    "alone": 100,
    "limit": 10,
    "lease": timedelta(seconds=30),
    "worker": "w",
    "holding": True,
}
NOBODY = EventId("00000000-0000-7000-8000-000000000000")
TOMBSTONE_PASS = {
    "after": 0,
    "limit": 100,
    "keep": timedelta(days=1),
    "keep_after_end": timedelta(days=1),
}
WRITES: dict[str, Mapping[str, Any]] = {
    "renew": {"rows": [1], "runs": [1], "lease": timedelta(seconds=1)},
    "held": {"rows": [1], "runs": [1]},
    "settled": {"rows": [1], "runs": [1]},
    "settle_done": {"rows": [1], "runs": [1], "outcome": "handled"},
    "promote": {"sources": ["laned"], "lanes": ["lane"]},
    "demote": {"sources": ["laned"], "lanes": ["lane"]},
    "prunable": {"delete_delay": timedelta(minutes=1), "limit": 10},
    "purge_tombstones": {"keep_keys": timedelta(days=7), "limit": 10},
    "take_submissions": {"limit": 10, "bytes": 1 << 20, "lanes_lock": 1},
    "replayable_parked": {"source": "a", "event_type": "b", "limit": 10},
    "complete_deliveries": {"ids": [NOBODY]},
    "adopt_items": {"ids": [NOBODY], "sources": ["webhooks"], "keys": ["old-7"]},
    "known_fingerprints": {
        "sources": ["webhooks"],
        "keys": ["old-7"],
        "hashes": [r"\\x00"],
        "window": timedelta(days=1),
    },
    "add_fingerprints": {
        "ids": [NOBODY],
        "hashes": [r"\\x00"],
        "window": timedelta(days=1),
    },
    "prune_fingerprints": {"window": timedelta(days=1), "limit": 10},
    "old_events_completed": TOMBSTONE_PASS,
    "old_events_failed": TOMBSTONE_PASS,
}
READS: dict[str, Mapping[str, Any]] = {
    "id_by_key": {"source": "webhooks", "idempotency_key": "old-7"},
    "older_in_lane": {"source": "laned", "lane": "lane", "ledger_id": 1 << 40},
    "running_in_lane": {"source": "laned", "lane": "lane"},
    "oldest_pending": {},
    "newest_time": {},
    "parked_type": {"source": "", "event_type": ""},
    "status_counts": {},
    "last_ledger_id": {},
    "audit": {"cursor": 1 << 40, "limit": 20},
    "waiting": {"limit": 100},
}
HOT = {**WRITES, **READS}
LISTED = [None, Status.PENDING, Status.PROCESSING, Status.FAILED]


@pytest.fixture(scope="module", params=[str(find_installs()[-1])])
async def grown(
    request: pytest.FixtureRequest, postgres_of: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Connection]:
    """A ledger with many events that cannot be claimed and a few that can. Its `live_events` begins
    with empty pages."""
    backend = BACKENDS[request.param](tmp_path_factory.mktemp("grown"), postgres_of)
    assert isinstance(backend, PostgresBackend)
    await backend.open()
    connection = await connect_for_tests(backend.url, seconds=120)
    for source, key, status, lane in (
        ("webhooks", "old-", "completed", None),
        ("laned", "old-", "pending", "lane"),
        ("capped", "old-", "pending", None),
    ):
        await connection.execute(GROW, source, key, status, lane, ROWS)
    await connection.execute(SUBMIT, ROWS)
    await connection.execute("; ".join(REBUILD_DERIVED * 2))
    await connection.execute("VACUUM (ANALYZE, INDEX_CLEANUP on) events, live_events")
    await record_in(backend.store, [envelope(f"live-{n}", source="live") for n in range(50)])
    yield connection
    await connection.execute(
        "TRUNCATE events, live_events, status_counts, submissions"
    )  # faster than row by row
    await connection.close()
    await backend.close()


async def blocks_touched(connection: Connection, name: str, values: Mapping[str, Any]) -> int:
    """Return how many pages of tables and indexes the block reads with its plan of production. Its
    changes are rolled back."""
    compiled = blocks("ackbox")[name]
    reads = name in READS or name.startswith("events_")
    given = ", ".join(map(literal, compiled.values(values)))
    transaction = connection.transaction()
    await transaction.start()
    if reads:
        settings = Address("", planned_by_value=True).session_settings
        await connection.execute(set_locally({**USERS_PLANS, **settings}))
    await connection.execute(f"PREPARE guarded AS {compiled.sql}")
    run = f"EXECUTE guarded ({given})" if given else "EXECUTE guarded"
    explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {run}"
    plan = await connection.fetchval(explain)
    await connection.execute("DEALLOCATE guarded")
    await transaction.rollback()
    return touched(plan)


def touched(plan: str) -> int:
    node = msgspec.json.decode(plan)[0]["Plan"]
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


async def test_the_cost_of_a_claim_depends_on_what_it_claims(grown: Connection) -> None:
    """The ledger has 40 000 rows behind a lane's head, and 40 000 of a source at its cap."""
    assert await blocks_touched(grown, "claim", CLAIM) < 180


async def test_a_claim_after_a_cursor_reads_fewer_pages(grown: Connection) -> None:
    since = datetime(2026, 1, 2, tzinfo=UTC)
    cursor = {"full_scan": False, "sources": ["capped"], "since": [since], "after": [0]}
    assert await blocks_touched(grown, "claim", {**CLAIM, **cursor}) < 40


async def test_a_claim_needs_no_statistics(postgres_of: Server) -> None:
    """The claim was planned on an empty table, and the table was not analyzed since."""
    url = postgres_of(find_installs()[-1]).create_database()
    store = await open_store(Address(url), clock=utc_now, observe=ignore_facts)
    connection = await connect_for_tests(url, seconds=120)
    compiled = blocks("ackbox")["claim"]
    claim = f"EXECUTE claim ({', '.join(map(literal, compiled.values(CLAIM)))})"
    try:
        await connection.execute(f"PREPARE claim AS {compiled.sql}")
        await connection.execute(claim)
        await connection.execute(GROW, "live", "new-", "pending", None, 50_000)
        await connection.execute("; ".join(REBUILD_DERIVED))
        plan = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {claim}")
        assert touched(plan) < 300
    finally:
        await connection.close()
        await store.close()


def literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return f"'{{{','.join(map(str, value))}}}'"
        case timedelta():
            return f"'{value.total_seconds()} s'"
        case _:
            return f"'{value}'"


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("status", LISTED)
async def test_a_list_reads_little_more_than_its_page(
    grown: Connection, status: Status | None, order: Order
) -> None:
    where = EventFilter(status=status)
    parameters = {**terms(where), **bounds(where, order, 50, None), "source": None}
    parameters |= {"unordered": False, "last_readable": 1 << 40}
    assert await blocks_touched(grown, f"events_{order}", parameters) < 400


@pytest.mark.parametrize("order", list(Order))
async def test_the_items_of_a_delivery_are_found_by_their_index(
    grown: Connection, order: Order
) -> None:
    where = EventFilter(parent_id=NOBODY, status=Status.PENDING)
    parameters = {**terms(where), **bounds(where, order, 50, None), "source": None}
    parameters |= {"unordered": False, "last_readable": 1 << 40}
    assert await blocks_touched(grown, f"events_{order}", parameters) < 20


# N19
@pytest.mark.parametrize("order", list(Order))
async def test_a_list_by_prefix_reads_no_more_pages_than_a_list_by_type(
    grown: Connection, order: Order
) -> None:
    pages = []
    for where in (EventFilter(event_type="nobody"), EventFilter(event_type="nobody.*")):
        parameters = {**terms(where), **bounds(where, order, 50, None), "source": where.source}
        parameters |= {"unordered": False, "last_readable": 1 << 40}
        pages.append(await blocks_touched(grown, f"events_{order}", parameters))
    by_type, by_prefix = pages
    assert by_prefix <= by_type * 1.05 + 10


@pytest.mark.parametrize("name", sorted(HOT))
async def test_a_hot_block_scans_no_table(grown: Connection, name: str) -> None:
    assert await blocks_touched(grown, name, HOT[name]) < 100


async def test_the_guard_sees_a_scan(grown: Connection) -> None:
    await grown.execute("SET enable_indexscan = off; SET enable_seqscan = on")
    try:
        assert await blocks_touched(grown, "settled", HOT["settled"]) > 2000
    finally:
        await grown.execute("RESET enable_indexscan; SET enable_seqscan = off")
