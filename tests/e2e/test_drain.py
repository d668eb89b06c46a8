"""How a serving process drains (W5, F26), and that a hanging handler delays no other (F24)."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from support.http.posting import posted
from support.http.problems import assert_problem
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

SLEEPS = """
import asyncio
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    await asyncio.sleep(event.json())
"""
RUNNING = "SELECT count(*) FROM events WHERE status = 'processing'"


def test_a_drain_finishes_running_events_and_releases_the_rest(tmp_path: Path) -> None:  # W5, F26
    with serving(tmp_path, SLEEPS, {"WORKER_COUNT": "3"}) as server:
        for _ in range(8):
            server.post(posted(payload=1.0))
        eventually(lambda: server.query(RUNNING)[0][0] >= 3)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/ready").status == 503)
        assert_problem(server.post(posted(payload=0)), 503, **{"retry-after": "1"})
        assert server.get("/health").status == 200
        assert server.process.wait(20) == 0
        assert server.query("SELECT status, attempts, count(*) FROM events GROUP BY 1, 2") == [
            ("completed", 1, 3),
            ("pending", 0, 5),
        ]


def test_after_the_grace_running_events_are_released(tmp_path: Path) -> None:  # W5
    with serving(tmp_path, SLEEPS, {"SHUTDOWN_GRACE": "300ms"}) as server:
        assert hang(server, 4) == 4
        assert server.stop() == 0
        assert released(server) == [("pending", 0, None, None)]


def test_a_second_signal_is_fast(tmp_path: Path) -> None:  # F26
    with serving(tmp_path, SLEEPS, {"SHUTDOWN_GRACE": "10m"}) as server:
        assert hang(server, 4) == 4
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/ready").status == 503)
        server.process.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert server.process.wait(20) == 0
        assert time.monotonic() - started < 5
        assert released(server) == [("pending", 0, None, None)]


def hang(server: AppServer, events: int) -> int:
    for _ in range(events):
        server.post(posted(payload=600))
    eventually(lambda: server.query(RUNNING) == [(events,)])
    return events


def released(server: AppServer) -> list[tuple[object, ...]]:
    return server.query("SELECT DISTINCT status, attempts, processor_id, lease_until FROM events")


HANGS_IN_THREADS = """
import time
from ackbox import Inbox

inbox = Inbox()

@inbox.on("hang", timeout="100ms")
def hang(event):
    time.sleep(600)
"""


def test_a_process_full_of_hanging_threads_drains_and_exits(tmp_path: Path) -> None:
    settings = {"WORKER_COUNT": "2", "RETRY_BASE_DELAY": "10m", "RETRY_MAX_DELAY": "10m"}
    with serving(tmp_path, HANGS_IN_THREADS, settings) as server:
        ids = [server.post(posted(event_type="hang")).json()["id"] for _ in range(2)]
        assert server.process.wait(20) == 1
        assert server.query("SELECT DISTINCT status, error_code FROM events") == [
            ("pending", "timeout")
        ]
        abandoned = [r for r in server.records() if r["event"] == "handler abandoned"]
        assert {(r["handler"], r["event_id"]) for r in abandoned} == {("app.hang", i) for i in ids}
        (fatal,) = [r for r in server.records() if r["event"] == "the inbox failed"]
        assert "2 handlers hang and cannot be ended" in fatal["reason"]
        for event_id in ids:  # N9
            assert f"app.hang (event {event_id}, in hang (app.py:9))" in fatal["reason"]
        assert "time.sleep(600)" in fatal["stack"]


BLOCKS = """
import time
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def blocks_the_loop(event):
    if event.json():
        time.sleep(event.json())
"""


def test_a_handler_that_blocks_the_loop_is_named_and_runs_once(tmp_path: Path) -> None:  # F19
    with serving(tmp_path, BLOCKS, {"CLAIM_TIMEOUT": "1s"}) as server:
        server.post(posted(payload=3))
        server.wait_until_idle()
        assert server.query("SELECT status, run FROM events") == [("completed", 1)]
        assert "blocks_the_loop" in server.log


X_HANGS = """
import asyncio
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*", source="x")
async def hang(event):
    await asyncio.sleep(60)

@inbox.on("*", source="y")
async def quick(event):
    await asyncio.sleep(0.01)
"""


@pytest.mark.parametrize("threads", [False, True])
def test_a_source_that_hangs_does_not_starve_another(tmp_path: Path, threads: bool) -> None:  # F24
    async def fill() -> None:
        store = await open_sqlite(tmp_path / "events.db", durability="normal")
        await record_in(store, [envelope(f"x{n}", source="x") for n in range(1000)])
        await record_in(store, [envelope(f"y{n}", source="y") for n in range(10)])
        await store.close()

    asyncio.run(fill())
    app = X_HANGS.replace("async def hang", "def hang").replace("await asyncio.sleep(60)", SLEEP)
    with serving(tmp_path, app if threads else X_HANGS, {"SHUTDOWN_GRACE": "1s"}) as server:
        open_ys = "SELECT count(*) FROM events WHERE source = 'y' AND status <> 'completed'"
        eventually(lambda: server.query(open_ys) == [(0,)], within=2)
        assert server.query(RUNNING)[0][0] >= 5
        assert server.stop() == 0
        assert server.statuses() == {"completed": 10, "pending": 1000}


SLEEP = "__import__('time').sleep(60)"


def test_the_backlog_counts_waiting_events_and_not_running_ones(tmp_path: Path) -> None:  # W7
    settings = {"WORKER_COUNT": "2", "QUEUE_MAXSIZE": "3"}
    with serving(tmp_path, SLEEPS, settings) as server:
        for _ in range(20):
            eventually(lambda: server.post(posted(payload=0)).status == 202, within=5)
        server.wait_until_idle()
        assert hang(server, 2) == 2
        assert [server.post(posted(payload=600)).status for _ in range(4)] == [202, 202, 202, 429]


STUBBORN = """
import asyncio
from ackbox import Inbox

inbox = Inbox()

@inbox.on("stubborn", timeout="500ms", max_attempts=1)
async def stubborn(event):
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass

@inbox.on("quick")
async def quick(event):
    pass
"""


def test_a_handler_that_cannot_be_cancelled_delays_no_other(tmp_path: Path) -> None:  # F24, F26
    settings = {"WORKER_COUNT": "2", "SHUTDOWN_GRACE": "500ms"}
    with serving(tmp_path, STUBBORN, settings) as server:
        server.post(posted(event_type="stubborn"))
        ended = "SELECT status, error_code FROM events WHERE event_type = 'stubborn'"
        eventually(lambda: server.query(ended) == [("failed", "timeout")], within=15)
        server.post(posted(event_type="quick"))
        server.wait_until_idle()
        assert server.stop() == 0


POISON = """
from ackbox import Event, Inbox, Retry, Tx

inbox = Inbox()

class Odd(Retry):
    def __init__(self):
        self.after = 60

@inbox.on("poison", max_attempts=2)
async def poison(event):
    raise Odd

@inbox.on("*")
async def fine(event):
    pass
"""


def test_an_outcome_that_cannot_be_written_harms_no_other_event(tmp_path: Path) -> None:
    settings = {"CLAIM_TIMEOUT": "1s", "RETRY_BASE_DELAY": "10ms"}
    with serving(tmp_path, POISON, settings) as server:
        server.post(posted(event_type="poison"))
        for _ in range(20):
            server.post(posted(event_type="fine"))
        server.wait_until_idle(within=20)
        assert server.statuses() == {"completed": 20, "failed": 1}
        assert server.stop() == 0
