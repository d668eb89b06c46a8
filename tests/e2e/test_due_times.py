"""A retry runs when it is due, also when the process was restarted meanwhile (F4)."""

import json
import time
from pathlib import Path

import pytest

from support.http.posting import posted
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

APP = """
import json, random, time
from ackbox import Inbox, Retry

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    again = None if event.attempts == 3 else random.uniform(0.5, 6)
    with open("runs.jsonl", "a") as file:
        line = {"id": event.id, "attempt": event.attempts, "at": time.time(), "again": again}
        print(json.dumps(line), file=file)
    if again is not None:
        raise Retry(after=f"{int(again * 1000)}ms")
"""
EVENTS, RESTARTS = 200, 5


@pytest.mark.serial
@pytest.mark.timeout(120)
def test_two_hundred_retries_over_restarts_run_within_a_second_of_due(tmp_path: Path) -> None:  # F4
    with serving(tmp_path, APP, {"WORKER_COUNT": "20"}) as server:
        for _ in range(EVENTS):
            assert server.post(posted()).status == 202
        downtimes = [restart(server) for _ in range(RESTARTS)]
        server.wait_until_idle(within=40)
        runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
        assert len(runs) == EVENTS * 3
        late = lateness(runs, downtimes)
        assert len(late) == EVENTS * 2
        assert min(late) >= -0.05
        assert max(late) <= 1.0
        assert server.statuses() == {"completed": EVENTS}


def restart(server: AppServer) -> tuple[float, float]:
    """Restart a second after the last restart. Return when the server was down, and until when."""
    time.sleep(1.0)
    down = time.time()
    assert server.stop() == 0  # a kill would repeat running events, not only due ones
    server.restart()
    return down, time.time()


def lateness(runs: list[dict[str, float]], downtimes: list[tuple[float, float]]) -> list[float]:
    """Return for each retry how long after its due time it ran, without the time in which the
    server was down: a retry that was due just before may have had no chance to run."""
    last = {(run["id"], run["attempt"]): run for run in runs}
    late = []
    for (event_id, attempt), run in last.items():
        if attempt > 1:
            before = last[event_id, attempt - 1]
            due = before["at"] + before["again"]
            late.append(run["at"] - due - down_between(due, run["at"], downtimes))
    return late


def down_between(due: float, ran: float, downtimes: list[tuple[float, float]]) -> float:
    return sum(max(min(ran, up) - max(due, down), 0) for down, up in downtimes)


FAILS_ONCE = """
import time
from ackbox import Inbox, Retry

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    open("runs", "a").write(f"{time.time()}\\n")
    if event.attempts == 1:
        raise Retry(after="3s")
"""


def test_a_retry_due_after_a_restart_needs_no_other_restart(tmp_path: Path) -> None:  # F4
    with serving(tmp_path, FAILS_ONCE) as server:
        assert server.post(posted()).status == 202
        eventually(lambda: server.query("SELECT outcome FROM events") == [("retry",)])
        assert server.stop() == 0
        server.restart()
        server.wait_until_idle(within=6)
        first, second = (float(line) for line in (tmp_path / "runs").read_text().split())
        assert 2.95 <= second - first <= 4.5
