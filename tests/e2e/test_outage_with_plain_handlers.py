"""PostgreSQL becomes unavailable while plain handlers run in their threads (S7, F59)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.databases.postgres import PostgresServer, find_installs, running_postgres
from support.http.posting import posted
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

WORKERS = 3
LEASE_SECONDS = 1
APP = """
import time
from pathlib import Path
from ackbox import Event, Inbox

inbox = Inbox()

@inbox.on("*")
def handle(event: Event) -> None:
    Path("runs").mkdir(exist_ok=True)
    Path("runs", f"{event.id}-{event.run}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres(find_installs()[-1]) as started:
        yield started


# S7, F59
def test_an_outage_of_three_leases_ends_no_process_and_repeats_each_run(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database()
    settings = {
        "DATABASE_URL": url,
        "WORKER_COUNT": str(WORKERS),
        "CLAIM_TIMEOUT": f"{LEASE_SECONDS}s",
        "LOG_LEVEL": "INFO",
    }
    with serving(tmp_path, APP, settings) as server:
        ids = [server.post(posted()).json()["id"] for _ in range(WORKERS)]
        eventually(lambda: len(runs_of(server)) == WORKERS)
        postgres.stop()
        try:
            lost = "ackbox_leases_lost_total"
            eventually(lambda: server.metric(lost) == WORKERS, within=20)
            end = time.monotonic() + 3 * LEASE_SECONDS
            while time.monotonic() < end:  # the length of the outage, not a wait for a condition
                assert server.get("/health").status == 200
        finally:
            postgres.start()
        eventually(server.is_ready, within=20)
        # On a busy machine a lease of a second may be lost once more.
        eventually(lambda: set(runs_of(server)) >= {(i, run) for i in ids for run in (1, 2)})
        (tmp_path / "go").touch()
        completed = "SELECT count(*) FROM events WHERE status = 'completed' AND run >= 2"
        database = url.rpartition("/")[2]
        eventually(lambda: postgres.execute(completed, database) == str(WORKERS), within=20)
        assert "handler abandoned" not in server.log
        eventually(lambda: server.metric("ackbox_events_processed_total") == WORKERS)
        assert server.stop() == 0


def runs_of(server: AppServer) -> list[tuple[str, int]]:
    names = [path.name.rpartition("-") for path in (server.folder / "runs").glob("*")]
    return [(event_id, int(run)) for event_id, _, run in names]
