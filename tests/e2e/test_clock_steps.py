"""The clock of the machine is set while the server runs (F25)."""

from pathlib import Path

import pytest

from support.http.posting import posted
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

APP = """
import asyncio, os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ackbox.app
from ackbox import Inbox, Retry

def wall():
    return datetime.now(UTC) + timedelta(hours=float(Path("hours").read_text()))

ackbox.app.utc_now = wall
inbox = Inbox()

@inbox.on("*")
async def handle(event):
    with open("runs", "a") as file:
        print(event.id, file=file)
    while event.json() == "slow" and not Path("go").exists():
        await asyncio.sleep(0.01)
    if event.attempts == 1:
        raise Retry(after="2s" if event.json() == "over the step" else "100ms")
"""


def set_clock(folder: Path, hours: int) -> None:
    (folder / "new").write_text(str(hours))
    (folder / "new").rename(folder / "hours")


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().split() if (folder / "runs").exists() else []


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_clock_skips_no_event_and_runs_none_twice(
    tmp_path: Path, hours: int
) -> None:  # F25
    set_clock(tmp_path, 0)
    with serving(tmp_path, APP) as server:
        slow, quick = accepted(server, "slow"), accepted(server, "over the step")
        retries = "SELECT count(*) FROM events WHERE outcome = 'retry'"
        eventually(lambda: slow in runs(tmp_path) and server.query(retries) == [(1,)])
        set_clock(tmp_path, hours)
        eventually(lambda: reported_steps(server) == [hours * 3600])
        later = accepted(server, "quick")
        eventually(lambda: server.statuses()["completed"] == 2)
        assert runs(tmp_path).count(slow) == 1
        (tmp_path / "go").touch()
        server.wait_until_idle(within=10)
        assert sorted(runs(tmp_path)) == sorted([slow, quick, later] * 2)
        assert server.query("SELECT run, unsettled FROM events") == [(2, 0)] * 3


def test_a_start_with_the_clock_set_back_runs_waiting_events(tmp_path: Path) -> None:  # F25
    set_clock(tmp_path, 1)
    with serving(tmp_path, APP, {"WORKER_COUNT": "0"}) as server:
        waiting = accepted(server, "quick")
        server.kill()
        (tmp_path / "go").touch()
        set_clock(tmp_path, 0)
        server.environment["WORKER_COUNT"] = "1"
        server.restart()
        server.wait_until_idle(within=10)
        assert runs(tmp_path) == [waiting, waiting]


def accepted(server: AppServer, payload: str) -> str:
    response = server.post(posted(payload=payload))
    assert response.status == 202
    return str(response.json()["id"])


def reported_steps(server: AppServer) -> list[float]:
    lines = [line for line in server.records() if line["event"] == "clock was set"]
    return [round(line["seconds"]) for line in lines]
