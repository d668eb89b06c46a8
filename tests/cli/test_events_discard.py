"""`ackbox events discard`, with a server and without one (N14)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledgers.seeding import States, seed
from support.servers.cli import Cli
from support.servers.server import read_ledger, running

Where = tuple[States, Path]


@pytest.fixture(params=["alone", "served"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    """A ledger with an event in each state, held by a server or by no process."""
    states = States()
    path = seed(tmp_path / "there" / "events.db", states.seed)
    if request.param == "alone":
        yield states, path
        return
    with running(path.parent):
        yield states, path


@pytest.fixture
def alone(tmp_path: Path) -> Where:
    states = States()
    return states, seed(tmp_path / "there" / "events.db", states.seed)


def state(path: Path, key: str) -> tuple[object, ...]:
    return read_ledger(path, "SELECT status, outcome FROM events WHERE idempotency_key = ?", key)[0]


def audit(path: Path) -> list[tuple[object, ...]]:
    return read_ledger(path, "SELECT action, actor FROM audit")


# N14
def test_named_events_are_discarded(cli: Cli, where: Where) -> None:
    states, path = where
    done = cli("events", "discard", states.failed.id, "retrying", "parked", DB_PATH=str(path))
    assert done.code == 0, done
    assert [line.split("  ")[1:] for line in done.out.splitlines()] == [
        ["was failed, 1 attempt, last error boom: it broke", "discarded: it never runs"],
        ["was pending (retry), 1 attempt, last error boom: it broke", "discarded: it never runs"],
        ["was pending (parked), 0 attempts", "discarded: it never runs"],
    ]
    assert state(path, "failed") == ("completed", "discarded")
    assert [action for action, _ in audit(path)] == ["discard"] * 3
    assert all(str(actor).startswith("cli ") for _, actor in audit(path))


# N14
def test_a_running_event_is_refused_and_a_completed_one_is_not_changed(
    cli: Cli, where: Where
) -> None:
    states, path = where
    done = cli("events", "discard", "running", states.completed.id, "failed", DB_PATH=str(path))
    assert done.code == 1
    assert "Not all events could be discarded" in done.err
    results = [line.split("  ")[2] for line in done.out.splitlines()]
    assert results == [
        "refused: it is being processed",
        "not changed: it is completed already",
        "discarded: it never runs",
    ]
    assert state(path, "completed") == ("completed", "handled")
    assert state(path, "running")[0] == "processing"


# N14
def test_events_that_match_a_filter_are_discarded(cli: Cli, where: Where) -> None:
    _, path = where
    done = cli("events", "discard", "--error", "boom", "--yes", DB_PATH=str(path))
    assert done.out.splitlines()[-1] == "2 of 2 events discarded"
    assert state(path, "failed") == state(path, "retrying") == ("completed", "discarded")
    assert state(path, "pending") == ("pending", None)


# N14
def test_a_dry_run_counts_and_changes_nothing(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "discard", "--type", "order.*", "--dry-run", DB_PATH=str(path))
    assert [line.split() for line in done.out.splitlines()] == [
        ["events", "type", "error"],
        ["1", "order.paid", "boom"],
    ]
    assert state(path, "failed") == ("failed", "dead")
    assert audit(path) == []


# N14
def test_nothing_changes_without_a_terminal_to_confirm(cli: Cli, alone: Where) -> None:
    _, path = alone
    assert (
        "confirm with --yes"
        in cli("events", "discard", "--status", "failed", DB_PATH=str(path)).line
    )
    assert state(path, "failed") == ("failed", "dead")


# N14
def test_a_filter_leaves_completed_events_out(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "discard", "--status", "completed", "--yes", DB_PATH=str(path))
    assert (done.code, done.err) == (0, "no events\n")
    assert audit(path) == []


# N14
@pytest.mark.parametrize(
    "options",
    [[], ["--yes"], ["failed", "--status", "failed"], ["failed", "--dry-run"]],
)
def test_an_invalid_selection_is_a_usage_error(cli: Cli, alone: Where, options: list[str]) -> None:
    _, path = alone
    assert cli("events", "discard", *options, DB_PATH=str(path)).code == 2
    assert state(path, "failed") == ("failed", "dead")


# N14
def test_explain_says_who_discarded_an_event(cli: Cli, alone: Where) -> None:
    _, path = alone
    assert cli("events", "discard", "failed", DB_PATH=str(path)).code == 0
    out = cli("events", "explain", "failed", DB_PATH=str(path)).out
    assert "completed" in out
    assert "an operator discarded it" in out
    assert "discard, did discarded, was failed" in out
