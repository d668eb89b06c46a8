"""The cost of a claim does not depend on rows that cannot be claimed now."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.model import Caps, Settlement
from ackbox.stores.sqlite.store import SqliteStore
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import QueueWorker, done

ROWS = 200_000
GROW = """
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :rows)
INSERT INTO events (id, source, idempotency_key, event_type, lane, claimable_at, transport,
    created_at, updated_at, last_seen_at, content_type, payload_sha256, payload)
SELECT printf('%s%035d', :mark, n), :source, 'old-' || n, 'webhook', :lane,
    CASE WHEN :lane IS NULL THEN '2026-01-01T00:00:00.000000Z'
         WHEN n = 1 THEN '2030-01-01T00:00:00.000000Z' END,
    'http', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z',
    '2026-01-01T00:00:00.000000Z', 'application/json', x'00', x'00'
FROM n
"""
CAPS = Caps(share=10, held={"capped": 10})


class Steps:
    """Counts the steps of SQLite's virtual machine."""

    def __init__(self) -> None:
        self.total = 0

    def note(self, event: dict[str, Any]) -> None:
        self.total += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(tmp_path / "ledger.db", durability="normal")
    yield store
    await store.close()


async def grow(store: SqliteStore, mark: str, source: str, lane: str | None) -> None:
    values = {"rows": ROWS, "mark": mark, "source": source, "lane": lane}
    await store._writer.submit(lambda connection: connection.execute(GROW, values).get)


async def cost_of_a_round(store: SqliteStore, key: str) -> int:
    """Claim, renew and settle ten new events of another source. Return the steps that it took."""
    await record_in(store, [envelope(f"{key}-{n}", source="live") for n in range(10)])
    me, steps = QueueWorker(store.queue), Steps()

    def trace(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, steps.note)

    await store._writer.submit(trace, outside_transaction=True)
    claims = await me.claim(10, caps=CAPS)
    assert [claim.source for claim in claims] == ["live"] * 10
    await me.queue.renew(claims, lease=claims[0].created_at - claims[0].created_at)
    await me.queue.settle([Settlement(claim, done()) for claim in claims])
    await store._writer.submit(lambda c: c.trace_v2(0), outside_transaction=True)
    return steps.total


async def test_rows_behind_a_lane_head_or_of_a_capped_source_cost_nothing(
    empty: SqliteStore,
) -> None:
    await record_in(empty, [envelope("first", source="capped")])  # two sources wait, as later
    small = await cost_of_a_round(empty, "small")
    await grow(empty, "l", "laned", "lane")
    behind_a_head = await cost_of_a_round(empty, "behind")
    await grow(empty, "c", "capped", None)
    beside_a_cap = await cost_of_a_round(empty, "beside")
    assert behind_a_head <= 2 * small
    assert beside_a_cap <= 2 * small
