"""`ackbox events replay`, with a server and without one (L11, F31)."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from ackbox.model import Envelope, EventFilter, EventRecord, Order, OutcomeName
from ackbox.stores.sqlite.store import SqliteStore
from support.ledgers.events import envelope, record_in
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


def status(path: Path, key: str) -> str:
    sql = "SELECT status FROM events WHERE idempotency_key = ?"
    return str(read_ledger(path, sql, key)[0][0])


def actors(path: Path) -> list[str]:
    return [str(row[0]) for row in read_ledger(path, "SELECT actor FROM audit")]


# L11, F31
def test_named_events_are_replayed(cli: Cli, where: Where) -> None:
    states, path = where
    done = cli("events", "replay", states.failed.id, "retrying", "parked", DB_PATH=str(path))
    assert done.code == 0, done
    assert [line.split("  ")[2].partition(" ")[0] for line in done.out.splitlines()] == [
        "replayed:",
        "due",
        "unparked:",
    ]
    assert status(path, "failed") == "pending"
    assert len(actors(path)) == 3
    assert all(actor.startswith("cli ") for actor in actors(path))


# N5
def test_it_prints_what_each_event_was(cli: Cli, where: Where) -> None:
    _, path = where
    done = cli("events", "replay", "failed", "pending", "parked", DB_PATH=str(path))
    assert [line.split("  ")[1] for line in done.out.splitlines()] == [
        "was failed, 1 attempt, last error boom: it broke",
        "was pending, 0 attempts",
        "was pending (parked), 0 attempts",
    ]


@pytest.mark.parametrize("held", [False, True])
def test_a_delivery_is_refused_and_its_items_are_replayed(
    cli: Cli, tmp_path: Path, held: bool
) -> None:
    whole = envelope("delivery", outcome=OutcomeName.SPLIT)

    async def fill(store: SqliteStore) -> None:
        await record_in(store, [whole, envelope("item", parent_id=whole.id)])
        await store.discard([item.id for item in await _items(store, whole)], actor="ann")

    path = seed(tmp_path / "there" / "events.db", fill)
    with running(path.parent) if held else nullcontext():
        done = cli("events", "replay", "delivery", "--completed", DB_PATH=str(path))
        assert "refused: it is a delivery" in done.out + done.err
        given = ("--parent", whole.id, "--completed", "--yes")
        done = cli("events", "replay", *given, DB_PATH=str(path))
        assert "1 of 1 events replayed" in done.out
    assert (status(path, "delivery"), status(path, "item")) == ("completed", "pending")
    refused = cli("events", "replay", "--outcome", "split", DB_PATH=str(path))
    assert "Deliveries do not run" in refused.err


async def _items(store: SqliteStore, whole: Envelope) -> Sequence[EventRecord]:
    where = EventFilter(parent_id=whole.id)
    return (await store.reader.events(where, order=Order.OLDEST, limit=9)).items


# N5
def test_a_completed_event_is_refused_unless_requested(cli: Cli, where: Where) -> None:
    _, path = where
    named = ("events", "replay", "completed", "--source", "shop")
    done = cli(*named, DB_PATH=str(path))
    assert done.code == 1
    assert "was completed, 1 attempt  refused: it is completed; --completed" in done.out
    assert status(path, "completed") == "completed"
    done = cli(*named, "--completed", DB_PATH=str(path))
    assert done.code == 0, done
    assert "replayed: it starts over" in done.out
    assert status(path, "completed") != "completed"


# N5
@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ([], 0),
        (["--completed"], 1),
        (["--status", "completed"], 1),
        (["--status", "processed"], 1),
        (["--status", "completed", "--outcome", "handled"], 1),
    ],
)
def test_a_filter_finds_completed_events_only_if_requested(
    cli: Cli, alone: Where, options: list[str], moved: int
) -> None:
    _, path = alone
    done = cli("events", "replay", "--source", "shop", *options, "--yes", DB_PATH=str(path))
    assert done.code == 0, done
    assert (done.out.splitlines() or ["none"])[-1] == (
        "1 of 1 events replayed" if moved else "none"
    )
    assert (status(path, "completed") == "pending") == bool(moved)


# N5
def test_an_outcome_of_completed_events_alone_is_not_enough(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "replay", "--outcome", "handled", "--yes", DB_PATH=str(path))
    assert done.code == 2
    assert "Add --completed" in done.err
    assert status(path, "completed") == "completed"


# F31
def test_an_event_that_runs_is_refused_and_the_others_are_not(cli: Cli, where: Where) -> None:
    _, path = where
    done = cli("events", "replay", "running", "failed", DB_PATH=str(path))
    assert done.code == 1
    assert "refused: it is being processed" in done.out
    assert status(path, "failed") == "pending"
    assert status(path, "running") == "processing"


# L11
def test_events_that_match_a_filter_are_replayed(cli: Cli, where: Where) -> None:
    _, path = where
    done = cli("events", "replay", "--error", "boom", "--yes", DB_PATH=str(path))
    assert done.out.splitlines()[-1] == "2 of 2 events replayed"
    assert status(path, "failed") == "pending"
    assert status(path, "completed") == "completed"


# L11
def test_a_status_has_its_name_in_messaging_here_too(cli: Cli, where: Where) -> None:
    _, path = where
    done = cli("events", "replay", "--status", "error", "--yes", DB_PATH=str(path))
    assert done.out.splitlines()[-1] == "1 of 1 events replayed"
    assert status(path, "failed") == "failed"


# L11
def test_a_dry_run_counts_and_moves_nothing(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "replay", "--error", "boom", "--dry-run", DB_PATH=str(path))
    assert [line.split() for line in done.out.splitlines()] == [
        ["events", "type", "error"],
        ["1", "webhook", "boom"],
        ["1", "order.paid", "boom"],
    ]
    assert status(path, "failed") == "failed"
    assert actors(path) == []


# L11
def test_nothing_is_replayed_without_a_terminal_to_confirm(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "replay", "--status", "failed", DB_PATH=str(path))
    assert "confirm with --yes" in done.line
    assert status(path, "failed") == "failed"


def test_no_match_is_a_message_and_no_error(cli: Cli, alone: Where) -> None:
    _, path = alone
    done = cli("events", "replay", "--type", "nobody", "--yes", DB_PATH=str(path))
    assert (done.code, done.err) == (0, "no events\n")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--yes"],
        ["failed", "--status", "failed"],
        ["failed", "--dry-run"],
        ["--status", "failed", "--rate", "0"],
        ["--status", "broken"],
    ],
)
def test_an_invalid_selection_is_a_usage_error(cli: Cli, alone: Where, options: list[str]) -> None:
    _, path = alone
    assert cli("events", "replay", *options, DB_PATH=str(path)).code == 2
    assert status(path, "failed") == "failed"


def test_an_unknown_event_is_one_line_and_nothing_moves(cli: Cli, alone: Where) -> None:
    _, path = alone
    assert "No event has the id" in cli("events", "replay", "failed", "x", DB_PATH=str(path)).line
    assert status(path, "failed") == "failed"


def test_a_ledger_that_is_not_there_is_not_made(cli: Cli, tmp_path: Path) -> None:
    line = cli("events", "replay", "--status", "failed", "--yes", DB_PATH="none.db").line
    assert "There is no ledger" in line
    assert not (tmp_path / "none.db").exists()
