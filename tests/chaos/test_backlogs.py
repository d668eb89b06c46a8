"""A start with a large backlog (F33), and many events that are due at once (F34)."""

import json
import time
from collections import Counter
from pathlib import Path

import apsw
import pytest

from support.http.posting import posted
from support.servers.app_server import AppServer, serving
from support.servers.server import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

MIB = 1024 * 1024
GROW = """
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
INSERT INTO events (id, source, idempotency_key, event_type, claimable_at, transport,
    created_at, updated_at, last_seen_at, content_type, payload_sha256, payload)
SELECT printf('%036d', n), 'webhooks', 'old-' || n, 'webhook', '2026-01-01T00:00:00.000000Z',
    'http', '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z',
    '2026-01-01T00:00:00.000000Z', 'application/json', x'00', CAST('{"n":1}' AS BLOB)
FROM n
"""
QUICK = """
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    pass
"""


def grow(server: Server, rows: int) -> None:
    """Insert rows. The server must be stopped, so that this process may write."""
    connection = apsw.Connection(str(server.ledger))
    connection.execute("PRAGMA synchronous = off")
    connection.execute(GROW, (rows,))
    connection.close()


def test_a_million_pending_rows_cost_neither_memory_nor_time(tmp_path: Path) -> None:  # F33
    with serving(tmp_path, QUICK, {"QUEUE_MAXSIZE": "2000000"}) as server:
        server.post(posted())
        server.wait_until_idle()
        empty = server.peak_bytes()
        assert server.stop() == 0
        grow(server, 1_000_000)
        started = time.monotonic()
        server.restart()
        ready = time.monotonic() - started
        at_start = server.peak_bytes() - empty
        time.sleep(10)  # at work on the backlog
        assert ready <= 5
        assert at_start <= 64 * MIB
        assert server.peak_bytes() - empty <= 64 * MIB
        assert server.statuses()["completed"] > 1000
        working = server.peak_bytes() - empty
        print(f"ready: {ready:.2f} s, {at_start / MIB:.1f} MiB; at work {working / MIB:.1f} MiB")


HERD = """
import asyncio, json, os, time
from ackbox import Inbox

inbox = Inbox()
running = 0

@inbox.on("*")
async def handle(event):
    global running
    running += 1
    try:
        with open("running", "a") as file:
            print(running, file=file)
        await asyncio.sleep(0.001)
        if not os.path.exists("up"):
            raise ConnectionError("downstream is down")
    finally:
        running -= 1
"""
DUE = "SELECT CAST(strftime('%s', retry_after) AS INTEGER) FROM events WHERE outcome = 'retry'"


def test_many_retries_due_at_once_are_limited_and_spread(tmp_path: Path) -> None:  # F34
    settings = {
        "WORKER_COUNT": "20",
        "RETRY_BASE_DELAY": "60s",
        "RETRY_MAX_DELAY": "300s",
        "RETRY_JITTER": "full",
        "QUEUE_MAXSIZE": "200000",
    }
    server = AppServer(tmp_path, HERD, settings)
    try:
        server.wait_until_ready()
        assert server.stop() == 0
        grow(server, 100_000)
        server.restart()
        waits = [ingest_seconds(server) for _ in range(200)]
        time.sleep(20)
        due = Counter(second for (second,) in server.query(DUE))
        concurrency = max(int(line) for line in (tmp_path / "running").read_text().split())
        (tmp_path / "up").touch()
    finally:
        server.kill()
    assert concurrency <= 20
    inner = sorted(due.items())[25:95]  # the window of the first delays, without its edges
    mean = sum(count for _, count in inner) / len(inner)
    assert max(count for _, count in inner) <= 2 * mean
    assert sorted(waits)[197] < 0.5
    print(json.dumps({"mean": mean, "p99": sorted(waits)[197]}))


def ingest_seconds(server: AppServer) -> float:
    started = time.monotonic()
    assert server.post(posted()).status == 202
    return time.monotonic() - started
