"""One process accepts events and another processes them, on one PostgreSQL (P3)."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.tcp_proxy import TcpProxy, proxied
from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import exchange, request
from support.servers.server import Server, running
from support.time.polling import eventually

SLEEPS = """
import asyncio
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    await asyncio.sleep(event.json())
"""
NEWEST = find_installs()[-1]


@pytest.fixture
def server(postgres_of: Callable[[Install], PostgresServer]) -> PostgresServer:
    return postgres_of(NEWEST)


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    made = server.create_database()
    yield made
    server.recycle_database(made)


def statuses(server: PostgresServer, url: str) -> str:
    sql = "SELECT status, count(*) FROM events GROUP BY 1 ORDER BY 1"
    return server.execute(sql, url.rpartition("/")[2])


def through(proxy: TcpProxy, url: str) -> str:
    return re.sub(r":\d+/", f":{proxy.port}/", url)


@contextmanager
def working(folder: Path, url: str, **settings: str) -> Iterator[Server]:
    folder.mkdir()
    (folder / "worked.py").write_text(SLEEPS)
    given = {"DATABASE_URL": url, "WORKER_COUNT": "3", **settings}
    with running(folder, given, command=("work", "worked:inbox")) as started:
        yield started


# P3
def test_one_process_accepts_events_and_another_processes_them(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": url, "WORKER_COUNT": "3"}
    with running(tmp_path / "in", settings, command=("serve", "--no-workers")) as ingester:
        for _ in range(5):
            assert ingester.post(posted(payload=0)).status == 202
        assert statuses(server, url) == "pending|5"
        with working(tmp_path / "work", url) as worker:
            eventually(lambda: statuses(server, url) == "completed|5")
            ingester.post(posted(payload=0))
            eventually(lambda: statuses(server, url) == "completed|6")
            eventually(lambda: worker.metric("ackbox_events_processed_total") == 6)


def test_a_worker_process_responds_to_probes_and_nothing_else(url: str, tmp_path: Path) -> None:
    with working(tmp_path / "work", url) as worker:
        assert worker.get("/health").json() == {"status": "ok", "durability": "full"}
        assert worker.get("/ready").status == 200
        assert worker.metric("ackbox_events_claimed_total") == 0
        for path in ("/webhooks", "/webhooks/batch"):
            response = exchange(worker.port, request("POST", path, posted(payload=0)))
            assert "`ackbox serve`" in assert_problem(response, 404)
        for path in ("/api/events", "/api/stats", "/webhooks?idempotency_key=a", "/openapi.json"):
            assert_problem(worker.get(path), 404)


def test_a_sender_at_a_worker_process_gets_404_and_not_401(url: str, tmp_path: Path) -> None:
    with working(tmp_path / "work", url, API_TOKEN="a-token-of-twenty-characters") as worker:
        assert_problem(worker.post(posted()), 404)
        assert_problem(exchange(worker.port, request("GET", "/metrics")), 401)


# S5
def test_without_a_token_the_routes_of_operators_are_closed_on_postgresql(
    url: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": url, "API_TOKEN": "", "READ_TOKEN": "only-looking-around"}
    with running(tmp_path / "in", settings) as server:
        for path in ("/openapi.json", "/nothing"):
            for headers in ({}, {"Authorization": "Bearer any"}):
                refused = exchange(server.port, request("GET", path, headers=headers))
                assert "set ACKBOX_API_TOKEN" in assert_problem(refused, 403)
        for path in ("/metrics", "/api/stats"):
            detail = assert_problem(exchange(server.port, request("GET", path)), 401)
            assert detail.startswith("Send READ_TOKEN")
            assert "DB_PATH.token" not in detail
        reader = {"Authorization": "Bearer only-looking-around"}
        refused = exchange(server.port, request("GET", "/openapi.json", headers=reader))
        assert "set ACKBOX_API_TOKEN" in assert_problem(refused, 403)
        assert exchange(server.port, request("GET", "/metrics", headers=reader)).status == 200
        assert server.post(posted(payload=0)).status == 202
        assert not list((tmp_path / "in").glob("*.token"))


# W5, F26
def test_a_worker_drains_at_a_signal(server: PostgresServer, url: str, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": url}
    with running(tmp_path / "in", settings, command=("serve", "--no-workers")) as ingester:
        for _ in range(8):
            ingester.post(posted(payload=1.0))
    with working(tmp_path / "work", url) as worker:
        eventually(lambda: "processing" in statuses(server, url))
        worker.process.send_signal(signal.SIGTERM)
        eventually(lambda: worker.get("/ready").status == 503)
        assert worker.get("/health").status == 200
        assert worker.process.wait(20) == 0
    assert statuses(server, url) == "completed|3\npending|5"


# F38
def test_a_worker_is_ready_while_its_database_is_available(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    with proxied(server.port) as proxy, working(tmp_path / "work", through(proxy, url)) as worker:
        proxy.cut()
        eventually(lambda: worker.get("/ready").status == 503)
        assert worker.get("/health").status == 200
        proxy.heal()
        eventually(worker.is_ready, within=20)


# W5, F38
def test_a_signal_ends_a_worker_whose_database_is_unavailable(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    settings = {"DATABASE_URL": url}
    with running(tmp_path / "in", settings, command=("serve", "--no-workers")) as ingester:
        ingester.post(posted(payload=600))
    with (
        proxied(server.port) as proxy,
        working(tmp_path / "work", through(proxy, url), SHUTDOWN_GRACE="200ms") as worker,
    ):
        eventually(lambda: "processing" in statuses(server, url))
        proxy.cut()
        eventually(lambda: worker.get("/ready").status == 503)
        started = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - started < 9  # 5 seconds are left for the outcome
