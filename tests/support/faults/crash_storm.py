"""A process that is killed again and again while slow handlers run (F58)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from support.databases.postgres import PostgresServer
from support.http.posting import posted
from support.servers.app_server import OPEN, AppServer, serving
from support.servers.cluster import clustered
from support.time.polling import eventually

APP = """
import asyncio
from pathlib import Path
from ackbox import Inbox

inbox = Inbox()

@inbox.on("slow")
async def slow(event):
    await asyncio.sleep({seconds})
    while not Path({gate!r}).exists():
        await asyncio.sleep(0.02)

@inbox.on("*")
async def quick(event):
    pass
"""
KILLS = 3
HANDLERS = 10
SETTINGS = {"WORKER_COUNT": str(HANDLERS), "CLAIM_TIMEOUT": "1s"}
SUSPECTS_STARTED = "SELECT count(*) FROM events WHERE run >= {run}"
SLOW_RUNNING = "SELECT count(*) FROM events WHERE status = 'processing' AND run = {run}"
QUICK_OPEN = "SELECT count(*) FROM events WHERE event_type = 'quick' AND status <> 'completed'"

Query = Callable[[str], list[tuple[Any, ...]]]


class Storm(NamedTuple):
    """A server whose slow handlers take some seconds, and run on until the gate file exists."""

    server: AppServer
    query: Query
    gate: Path

    def kill_repeatedly(self) -> None:
        """Kill the server twice while all ten events run. They are suspects then: at the third kill
        only one of them runs."""
        for _ in range(HANDLERS):
            assert self.server.post(posted(event_type="slow")).status == 202
        for run in range(1, KILLS + 1):
            running = HANDLERS if run < KILLS else 1
            query = SLOW_RUNNING.format(run=run)
            eventually(lambda: self.query(query)[0][0] >= running, within=30, every=0.05)  # noqa: B023
            self.server.kill()
            self.server.restart()

    def wait_for_unrelated(self) -> float:
        """Once a suspect runs, post unrelated events; return how long it takes until all are
        done."""
        started = SUSPECTS_STARTED.format(run=KILLS)  # one before the last kill, and one after it
        eventually(lambda: self.query(started)[0][0] >= 2, within=30, every=0.05)
        posted_at = monotonic()
        for _ in range(5):
            assert self.server.post(posted(event_type="quick")).status == 202
        eventually(lambda: self.query(QUICK_OPEN) == [(0,)], within=60, every=0.02)
        return monotonic() - posted_at

    def check(self, *, within: float) -> None:
        """Let the slow handlers end, and check that no event became a dead letter."""
        self.gate.touch()
        eventually(lambda: self.query(OPEN) == [(0,)], within=within, every=0.1)
        assert self.query("SELECT status, count(*) FROM events GROUP BY 1") == [
            ("completed", HANDLERS + 5)
        ]


@contextmanager
def storm_on_sqlite(folder: Path, seconds: float, **settings: str) -> Iterator[Storm]:
    gate = _gate(folder, seconds)
    app = APP.format(seconds=seconds, gate=str(gate))
    with serving(folder, app, {**SETTINGS, **settings}) as server:
        yield Storm(server, server.query, gate)


@contextmanager
def storm_on_postgres(
    server: PostgresServer, folder: Path, seconds: float, **settings: str
) -> Iterator[Storm]:
    gate = _gate(folder, seconds)
    app = APP.format(seconds=seconds, gate=str(gate))
    with clustered(server, folder, app, {**SETTINGS, **settings}, count=1) as cluster:
        yield Storm(cluster.instances[0], cluster.query, gate)


def _gate(folder: Path, seconds: float) -> Path:
    """Return the gate: open from the start if the handlers take their time anyway."""
    gate = folder / "gate"
    if seconds:
        gate.touch()
    return gate
