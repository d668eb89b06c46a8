"""SIGKILL at any moment: nothing acknowledged is lost, nothing stale applied (F2, F5, F23)."""

from pathlib import Path

import pytest

from support.http.posting import posted
from support.ledgers.history import APP, SETTINGS, kill_repeatedly
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually


@pytest.mark.timeout(240)
async def test_twenty_five_kills_under_load_lose_nothing(tmp_path: Path) -> None:  # F2
    with serving(tmp_path, APP, SETTINGS) as server:
        history = await kill_repeatedly(server, 25)
        assert len(history.acked) > 500
        history.check(server.query)
        assert server.stop() == 0


SLEEPS_ONCE = """
import asyncio
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    if event.run == 1:
        await asyncio.sleep(600)
"""


def test_events_that_ran_at_a_kill_run_again_at_once(tmp_path: Path) -> None:  # F5, W4
    settings = {"WORKER_COUNT": "20", "CLAIM_TIMEOUT": "10m"}
    with serving(tmp_path, SLEEPS_ONCE, settings) as server:
        for _ in range(20):
            assert server.post(posted()).status == 202
        running = "SELECT count(*) FROM events WHERE status = 'processing'"
        eventually(lambda: server.query(running) == [(20,)])
        server.kill()
        server.restart()
        server.wait_until_idle(within=3)
        assert server.query("SELECT DISTINCT status, attempts, run FROM events") == [
            ("completed", 1, 2)  # S9: the attempt is refunded
        ]


KILLER = """
import os
from ackbox import Inbox

inbox = Inbox()

@inbox.on("killer")
async def kill(event):
    os._exit(9)

@inbox.on("*")
async def handle(event):
    pass
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("attempts", "runs"), [(1, 4), (3, 5)])
def test_a_handler_that_kills_the_process_ends_as_a_dead_letter_alone(
    tmp_path: Path, attempts: int, runs: int
) -> None:  # F23, S9
    """This holds with one attempt too: a kill must not cost the events that ran beside the killer
    their only attempt."""
    settings = {"WORKER_COUNT": "0", "MAX_ATTEMPTS": str(attempts)}
    server = AppServer(tmp_path, KILLER, settings)
    try:
        server.wait_until_ready()
        for n in range(100):
            event_type = "killer" if n == 3 else "innocent"
            assert server.post(posted(event_type=event_type)).status == 202
        server.stop()
        server.environment["WORKER_COUNT"] = "60"
        starts = restart_until_idle(server)
        counts = server.query("SELECT event_type, status, count(*) FROM events GROUP BY 1, 2")
        assert counts == [("innocent", "completed", 99), ("killer", "failed", 1)]
        assert server.query("SELECT run, error_code FROM events WHERE event_type = 'killer'") == [
            (runs + 1, "crashed")
        ]  # the claim that dead-letters it counts too
        assert starts == runs + 1  # the restart loop ends
    finally:
        if server.process.poll() is None:
            server.kill()


def restart_until_idle(server: AppServer) -> int:
    """Restart the server as systemd would, and return how often it was started."""
    for start in range(1, 20):
        server.process = server._start()
        eventually(lambda: has_died(server) or is_idle(server), within=20, every=0.1)
        if server.process.poll() is None:
            return start
    raise AssertionError("the server never became idle")


def has_died(server: AppServer) -> bool:
    return server.process.poll() is not None


def is_idle(server: AppServer) -> bool:
    open_events = "SELECT count(*) FROM events WHERE status IN ('pending', 'processing')"
    return server.query(open_events) == [(0,)]
