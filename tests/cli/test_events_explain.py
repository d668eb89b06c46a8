"""`ackbox events explain`: the state of an event, explained on one screen (L11)."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from ackbox.app import utc_now
from ackbox.cli.workers import find_workers
from ackbox.config import Settings
from ackbox.model import DeadLetter, Failure, RetryLater, Snoozed
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli
from support.servers.server import running
from support.workers.queue_worker import QueueWorker


@pytest.fixture(scope="module")
def states() -> States:
    return States()


@pytest.fixture(scope="module")
def path(states: States, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seed(tmp_path_factory.mktemp("explained") / "events.db", states.seed)


def explain(cli: Cli, path: Path, id_or_key: str, *more: str) -> str:
    done = cli("events", "explain", id_or_key, *more, DB_PATH=str(path))
    assert done.code == 0, done
    return done.out


# L11
@pytest.mark.parametrize(
    ("id_or_key", "expected"),
    [
        (
            "pending",
            [
                "pending: due; no server runs on this ledger",
                "none until a process with workers runs",
            ],
        ),
        ("retrying", ["it waits for a retry", "after 1 failed", "boom: it broke", "(in "]),
        ("parked", ["parked: no handler matches this type"]),
        ("running", ["the lease of a-worker has expired"]),
        ("failed", ["a dead letter, kept until", "(in 29d)", "run 1, ", "boom: it broke"]),
        ("behind", ["behind another event of its lane", "customer-1: waits for"]),
        ("head", ["customer-1: no event is before it"]),
    ],
)
def test_it_explains_the_state_of_an_event(
    cli: Cli, path: Path, id_or_key: str, expected: list[str]
) -> None:
    text = explain(cli, path, id_or_key)
    assert [part for part in expected if part not in text] == [], text


# N23
@pytest.mark.parametrize(
    ("workers", "expected", "next_run"),
    [
        (
            "0",
            "serves this ledger without workers: nothing claims it",
            "none until a process with workers runs",
        ),
        ("2", "a worker of process", "when a worker is free"),
    ],
)
def test_it_knows_whether_a_worker_runs(
    cli: Cli, tmp_path: Path, workers: str, expected: str, next_run: str
) -> None:
    path = seed(tmp_path / "events.db", States().seed)
    assert "due; no server runs on this ledger" in explain(cli, path, "pending")
    with running(tmp_path, {"WORKER_COUNT": workers, "UNHANDLED": "park"}):
        described = find_workers(Settings(db_path=path))
        assert expected in described.sentence
        assert described.may_run == (workers != "0")
        if not described.may_run:
            text = explain(cli, path, "pending")
            assert expected in text
            assert next_run in text


# N14
@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("90", "kept until"),
        ("1", "kept until"),  # 24 hours after it failed, whatever its age
    ],
)
def test_it_says_until_when_a_dead_letter_is_kept(
    cli: Cli, path: Path, days: str, expected: str
) -> None:
    done = cli("events", "explain", "failed", DB_PATH=str(path), DEAD_LETTER_RETENTION_DAYS=days)
    assert f"{expected} " in done.out
    assert ("(in 89d)" in done.out) == (days == "90")


# L11
def test_it_names_the_event_that_a_lane_waits_for(cli: Cli, path: Path, states: States) -> None:
    assert explain(cli, path, "behind").count(states.head.id) == 2  # the next run, and the lane


# S9
@pytest.mark.parametrize(
    ("crashes", "expected"),
    [
        (1, "1 of its last runs in a row ended with the process\n"),
        (
            3,
            "3 of its last runs in a row ended with the process: it runs only while no",
        ),
    ],
)
def test_it_reports_runs_that_ended_with_the_process(
    cli: Cli, tmp_path: Path, crashes: int, expected: str
) -> None:
    path = tmp_path / "ackbox.db"

    async def crash() -> None:
        store = await open_sqlite(path)
        await record_in(store, [envelope("a")])
        for _ in range(crashes + 1):
            await QueueWorker(store.queue).claim_any()
            await store.close()
            store = await open_sqlite(path)
        await store.close()

    asyncio.run(crash())
    text = "\n".join(line.rstrip() for line in explain(cli, path, "a").splitlines())
    assert expected in text + "\n"


# N17
def test_it_reports_a_snooze(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ackbox.db"

    async def snooze() -> None:
        store = await open_sqlite(path, clock=utc_now)
        await record_in(store, [envelope("a")])
        me = QueueWorker(store.queue)
        await me.settle(await me.claim_one(), Snoozed(timedelta(hours=5)))
        await store.close()

    asyncio.run(snooze())
    text = explain(cli, path, "a")
    assert "snoozed: its handler asked to run later, and no attempt was spent" in text
    assert "(in " in text
    assert "attempts spent since it arrived or was replayed: 0" in text


# L11
def test_it_says_how_it_was_verified_and_what_was_absorbed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ackbox.db"

    async def fill() -> None:
        store = await open_sqlite(path)
        await record_in(store, [envelope("k", b"1", verified_by="stripe")])
        await record_in(store, [envelope("k", b"1"), envelope("k", b"2")])
        await store.close()

    asyncio.run(fill())
    text = explain(cli, path, "k")
    assert "yes, by stripe" in text
    assert "sent 3 times; 2 duplicates absorbed, 1 of them with another payload" in text


# L11
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure("KeyError: 'address'", "KeyError"), "KeyError: 'address'"),
        (Failure("KeyError", "KeyError"), "KeyError"),
        (Failure("it took longer than 5m", "timeout"), "timeout: it took longer than 5m"),
        (Failure("KeyErrors are bad", "KeyError"), "KeyError: KeyErrors are bad"),
    ],
)
def test_it_says_an_error_once(cli: Cli, tmp_path: Path, failure: Failure, expected: str) -> None:
    path = tmp_path / "ackbox.db"

    async def fill() -> None:
        store = await open_sqlite(path)
        await record_in(store, [envelope("k")])
        me = QueueWorker(store.queue)
        await me.settle(await me.claim_one(), DeadLetter(failure))
        await store.close()

    asyncio.run(fill())
    (line,) = [line for line in explain(cli, path, "k").splitlines() if line.startswith("error")]
    assert line.split("), ")[1].strip() == expected


@pytest.mark.parametrize("command", ["explain", "show"])
def test_the_last_traceback_is_below(cli: Cli, tmp_path: Path, command: str) -> None:  # N2
    path = tmp_path / "ackbox.db"
    asyncio.run(fail(path, "first", 'File "app.py", line 1, in ship\n\nKeyError: \x1b[31m'))
    out = cli("events", command, "k", DB_PATH=str(path)).out
    assert out.endswith(
        '\n\ntraceback of run 2:\n  File "app.py", line 1, in ship\n\n  KeyError: \\x1b[31m\n'
    )
    assert "first" not in out


def test_show_has_the_tracebacks_as_json(cli: Cli, tmp_path: Path) -> None:  # N2
    path = tmp_path / "ackbox.db"
    asyncio.run(fail(path, "first", "last"))
    shown = json.loads(cli("events", "show", "k", "--json", DB_PATH=str(path)).out)
    assert [run["traceback"] for run in shown["errors"]] == ["first", "last"]


@pytest.mark.parametrize("command", ["explain", "show"])
def test_the_traceback_of_an_earlier_run_is_not_that_of_the_last(
    cli: Cli, tmp_path: Path, command: str
) -> None:  # N2
    path = tmp_path / "ackbox.db"
    asyncio.run(fail(path, "first", None))
    assert "traceback" not in cli("events", command, "k", DB_PATH=str(path)).out


async def fail(path: Path, *tracebacks: str | None) -> None:
    store = await open_sqlite(path)
    await record_in(store, [envelope("k")])
    me = QueueWorker(store.queue)
    for traceback in tracebacks:
        failure = Failure("boom", "E", traceback=traceback)
        await me.settle(await me.claim_one(), RetryLater(failure, timedelta(0)))
    await store.close()


# L11
def test_it_says_what_operators_did(cli: Cli, tmp_path: Path) -> None:
    path = seed(tmp_path / "events.db", States().seed)
    assert cli("events", "replay", "failed", DB_PATH=str(path)).code == 0
    text = explain(cli, path, "failed")
    assert "an operator replayed it" in text
    assert "replay, did replayed, was failed" in text


def test_it_fits_on_a_screen(cli: Cli, path: Path, states: States) -> None:
    for event in states.all:
        assert len(explain(cli, path, event.id).splitlines()) <= 24


# F49
def test_text_from_senders_does_not_control_the_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ackbox.db"
    strange = "[red]\u202e"

    async def fill() -> None:
        store = await open_sqlite(path)
        await record_in(store, [envelope(strange, lane=strange, event_type=strange)])
        await store.close()

    asyncio.run(fill())
    out = explain(cli, path, strange)
    assert all(line.isprintable() for line in out.splitlines())


def test_an_unknown_event_is_one_line(cli: Cli, path: Path) -> None:
    done = cli("events", "explain", "nobody", DB_PATH=str(path))
    assert "No event has the id nobody" in done.line


def test_the_lease_of_a_living_worker_has_an_end(cli: Cli, tmp_path: Path) -> None:
    from ackbox.app import utc_now
    from support.workers.event_runs import WORKER, claim

    path = tmp_path / "ackbox.db"

    async def fill() -> None:
        store = await open_sqlite(path, clock=utc_now)
        await record_in(store, [envelope("k", at=utc_now() - timedelta(minutes=1))])
        await claim(store)
        await store.close()

    asyncio.run(fill())
    assert f"worker {WORKER} holds it until" in explain(cli, path, "k")
