"""`ackbox stats`, with a server and without one (N19)."""

import json
from pathlib import Path

import pytest

from support.ledgers.events import NOON
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli
from support.servers.server import running

COUNTS = {"pending": 5, "processing": 1, "completed": 1, "failed": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return seed(tmp_path / "events.db", States().seed)


# N19
def test_it_counts_by_status_and_says_how_long_the_oldest_waits(cli: Cli, path: Path) -> None:
    done = cli("stats", DB_PATH=str(path))
    assert done.code == 0, done
    *table, oldest = done.out.splitlines()
    assert [tuple(line.split()) for line in table] == [
        ("status", "events"),
        *[(status, str(count)) for status, count in COUNTS.items()],
    ]
    assert oldest == "the oldest pending event has waited for 2h"


# N19
def test_as_json_it_equals_the_response_of_the_server(cli: Cli, path: Path) -> None:
    with running(path.parent) as server:
        served = server.get("/api/stats").json()
        printed = json.loads(cli("stats", "--json", DB_PATH=str(path)).out)
    assert printed["events"] == served["events"] == COUNTS
    assert printed["oldest_pending_at"] == served["oldest_pending_at"] > str(NOON.year)
    assert printed["oldest_pending_seconds"] == pytest.approx(
        served["oldest_pending_seconds"], abs=60
    )
    assert printed.keys() == served.keys()


# N19
def test_a_ledger_that_is_not_there_is_one_line(cli: Cli) -> None:
    assert "There is no ledger" in cli("stats", DB_PATH="none.db").line
