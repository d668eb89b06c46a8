"""`ackbox promote`: the whole ledger is transferred, and processing continues."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.model import ReceiptKind, ReplayKind, Status
from ackbox.stores.columns import EVENT_COLUMNS
from ackbox.stores.postgres.admin import transfer_in
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.transfer import TABLES, Batch
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import envelope, envelopes, noon, record_in
from support.ledgers.promoting import Everything, opened, postgres_rows, promote, sqlite_rows
from support.ledgers.seeding import LONG_AGO, seed
from support.servers.app_server import serving
from support.servers.cli import Cli, Ledger
from support.servers.server import read_ledger
from support.time.polling import eventually
from support.workers.event_runs import DONE, claim, retry_later, settle, work

MIB = 1024 * 1024


@pytest.fixture
def full(tmp_path: Path) -> Everything:
    everything = Everything()
    everything.make(tmp_path / "ackbox.db")
    return everything


@pytest.mark.parametrize("install", find_installs(), ids=str)
def test_every_column_of_every_event_arrives(
    cli: Cli,
    full: Everything,
    tmp_path: Path,
    install: Install,
    postgres_of: Callable[[Install], PostgresServer],
) -> None:
    server = postgres_of(install)
    target = server.create_database()
    promote(cli, target)
    same = [name for name in EVENT_COLUMNS if name not in ("errors", "lease_until", "claimable_at")]
    columns = ", ".join(same)
    here = sqlite_rows(tmp_path / "ackbox.db", "events", columns)
    assert len(here) >= 10
    assert postgres_rows(target, f"SELECT {columns} FROM events ORDER BY 1") == here
    server.recycle_database(target)


def test_errors_schedules_and_lanes_arrive(
    cli: Cli, full: Everything, target: str, tmp_path: Path
) -> None:
    promote(cli, target)
    times = "id, lease_until, claimable_at, retry_after"
    where = "events WHERE status <> 'processing'"
    here = sqlite_rows(tmp_path / "ackbox.db", where, times)
    assert sorted(postgres_rows(target, f"SELECT {times} FROM {where}")) == here
    errors = postgres_rows(
        target, "SELECT errors -> 0 ->> 'error' FROM events WHERE errors IS NOT NULL"
    )
    assert errors == [("it broke",), ("it broke",)]
    assert postgres_rows(target, "SELECT source, lane FROM lanes") == [("webhooks", "customer-1")]


def test_tombstones_fingerprints_cursors_audit_and_quarantine_arrive(
    cli: Cli, full: Everything, target: str, tmp_path: Path
) -> None:
    promote(cli, target)
    for table in ("tombstones", "fingerprints", "cursors", "audit"):
        here = sqlite_rows(tmp_path / "ackbox.db", table)
        assert here
        assert postgres_rows(target, f"SELECT * FROM {table} ORDER BY 1, 2") == here
    assert len(sqlite_rows(tmp_path / "ackbox.db", "tombstones")) == 2
    columns = ", ".join(TABLES["quarantine"])
    here = sqlite_rows(tmp_path / "ackbox.db", "quarantine", columns)
    assert postgres_rows(target, f"SELECT {columns} FROM quarantine ORDER BY 1") == here
    usage = "SELECT source, requests, bytes FROM quarantine_usage ORDER BY 1"
    assert postgres_rows(target, usage) == read_ledger(tmp_path / "ackbox.db", usage)
    assert len(here) == 2


def test_events_that_handlers_sent_are_recorded_by_the_first_server(
    cli: Cli, full: Everything, target: str, tmp_path: Path
) -> None:
    promote(cli, target)
    columns = ", ".join(TABLES["submissions"])
    here = sqlite_rows(tmp_path / "ackbox.db", "submissions", columns)
    assert len(here) == 2
    assert postgres_rows(target, f"SELECT {columns} FROM submissions ORDER BY 1") == here

    async def run() -> None:
        store = await opened(target)
        try:
            moved = await store.submissions.move()
            assert [e.idempotency_key for e in moved.envelopes] == ["sent-0", "sent-1"]
            assert [e.payload for e in moved.envelopes] == [b'{"n":1}', b"\xff\x00exact"]
            await store.database.fetch("submit", **SUBMITTED)  # it gets a number of its own
        finally:
            await store.close()

    asyncio.run(run())
    assert postgres_rows(target, "SELECT submission_id FROM submissions") == [(3,)]


SUBMITTED: dict[str, list[Any]] = {
    "sources": ["app"],
    "keys": ["next"],
    "types": ["sent"],
    "lanes": [None],
    "content_types": ["application/json"],
    "parents": [None],
    "payloads": [b"1"],
}


def test_payloads_that_are_json_can_be_queried(cli: Cli, full: Everything, target: str) -> None:
    promote(cli, target)
    rows = postgres_rows(target, "SELECT payload_json::text FROM events WHERE payload = '[1, 2]'")
    assert rows == [("[1, 2]",)]
    assert postgres_rows(
        target, "SELECT payload_json FROM events WHERE idempotency_key = 'pending'"
    ) == [(None,)]


def test_it_says_what_it_transferred_and_that_the_file_was_not_changed(
    cli: Cli, full: Everything, target: str, tmp_path: Path
) -> None:
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    done = cli("promote", "ackbox.db", target)
    assert (
        "15 events, 2 tombstones, 1 fingerprints, 1 cursors, 1 audit, 2 submissions, 2 quarantine"
        in done.out
    )
    assert target.rpartition("@")[2] in done.out
    assert "transferred 24 of 24 rows (100 %)" in done.err
    assert "verified 24 of 24 rows (100 %)" in done.err
    assert "ackbox.db was not changed" in done.err
    assert "Set ACKBOX_API_TOKEN" in done.err  # S5
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_tables_of_the_users_own_are_named_and_stay(cli: Cli, ledger: Ledger, target: str) -> None:
    connection = apsw.Connection(str(ledger(envelopes(3))))
    connection.execute("CREATE TABLE access (customer TEXT)")
    connection.close()
    done = cli("promote", "ackbox.db", target)
    assert "Your own tables were not transferred: access." in done.err
    assert postgres_rows(target, "SELECT to_regclass('access')") == [(None,)]


def test_the_url_may_come_from_the_settings(cli: Cli, ledger: Ledger, target: str) -> None:
    ledger(envelopes(3))
    assert cli("promote", "ackbox.db", DATABASE_URL=target).code == 0
    assert postgres_rows(target, "SELECT count(*) FROM events") == [(3,)]


def test_events_that_are_only_in_the_log_are_transferred(
    cli: Cli, tmp_path: Path, target: str
) -> None:
    """The ledger is in the state that a killed server leaves."""
    path = tmp_path / "ackbox.db"
    script = (
        "import asyncio, os, sys; from pathlib import Path;"
        "from support.ledgers.backends import open_sqlite;"
        "from support.ledgers.events import envelopes, record_in\n"
        "async def main():\n"
        "    store = await open_sqlite(Path(sys.argv[1]))\n"
        "    await record_in(store, envelopes(50))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    tests = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", script, path], env=tests, check=False)
    assert (tmp_path / "ackbox.db-wal").stat().st_size
    promote(cli, target)
    assert postgres_rows(target, "SELECT count(*) FROM events") == [(50,)]


def test_the_lease_of_a_run_that_a_crash_left_ends_with_the_promotion(
    cli: Cli, full: Everything, target: str
) -> None:
    promote(cli, target)
    ends = "lease_until = claimable_at, claimable_at BETWEEN now() - interval '1 h' AND now()"
    running = postgres_rows(target, f"SELECT {ends} FROM events WHERE status = 'processing'")
    assert running == [(True, True)]


def test_a_run_that_a_crash_left_is_claimable_at_once_and_its_result_is_fenced(
    cli: Cli, full: Everything, target: str
) -> None:
    promote(cli, target)

    async def run() -> None:
        store = await opened(target)
        try:
            claims = {each.id: each for each in await claim(store)}
            second = claims[full.states.running.id]
            assert (second.run, second.attempts, second.unsettled) == (2, 1, 1)
        finally:
            await store.close()

    asyncio.run(run())


def test_only_the_head_of_a_lane_is_claimable_and_then_the_next(
    cli: Cli, full: Everything, target: str
) -> None:
    promote(cli, target)

    async def run() -> None:
        store = await opened(target)
        try:
            for expected in (full.states.head, full.states.behind, full.later):
                claims = [each for each in await claim(store) if each.lane]
                assert [each.id for each in claims] == [expected.id]
                await settle(store, claims, DONE)
        finally:
            await store.close()

    asyncio.run(run())


APP = """
from ackbox import Inbox

inbox = Inbox()

@inbox.on("webhook")
async def handle(event):
    pass
"""


def test_a_real_server_goes_on_with_what_waited_and_what_was_to_be_retried(
    cli: Cli, tmp_path: Path, target: str
) -> None:
    sent = [envelope(f"{n}", at=LONG_AGO) for n in range(20)]

    async def leave(store: SqliteStore) -> None:
        await record_in(store, sent)
        await work(store, sent[:5], retry_later(timedelta(minutes=5)))

    seed(tmp_path / "ackbox.db", leave)
    promote(cli, target)
    attempts = "SELECT attempts, count(*) FROM events WHERE status = 'completed' GROUP BY 1"
    settings = {"DATABASE_URL": target, "LOG_LEVEL": "INFO"}
    with serving(tmp_path / "server", APP, settings) as server:
        eventually(lambda: dict(postgres_rows(target, attempts)) == {1: 15, 2: 5}, every=0.1)
        assert server.post({"idempotency_key": "7", "payload": 1}).status == 200
        assert server.post({"idempotency_key": "new", "payload": 1}).status == 202


def test_old_keys_are_known_and_new_events_get_new_numbers(
    cli: Cli, full: Everything, target: str, tmp_path: Path
) -> None:
    promote(cli, target)
    last = read_ledger(tmp_path / "ackbox.db", "SELECT seq FROM sqlite_sequence")[0][0]

    async def run() -> None:
        store = await opened(target)
        reader = PostgresReader(Address(target))
        try:
            keys = ["old", "tombstoned", "completed-again", "pending", "new"]
            receipts = await record_in(store, [envelope(key, b"x") for key in keys])
            kinds = [receipt.kind for receipt in receipts]
            known, new = ReceiptKind.CONFLICT, ReceiptKind.NEW
            assert kinds == [known, known, new, known, new]
            assert receipts[0].id == full.old.id
            fresh = await reader.event(receipts[-1].id)
            assert fresh is not None
            assert fresh.ledger_id > last
            assert await store.cursor("feed") == "page-7"
            done = await store.replay([full.states.completed.id], actor="bob", completed=True)
            assert done == {full.states.completed.id: ReplayKind.REPLAYED}
            audit = await reader.audit(limit=10)
            assert [(each.audit_id, each.actor) for each in audit.items] == [(2, "bob"), (1, "ann")]
            stats = await reader.stats(noon())
            assert stats.counts[Status.COMPLETED] == 4 - 1
        finally:
            await reader.close()
            await store.close()

    asyncio.run(run())


def test_numbers_of_pruned_events_are_not_given_again(
    cli: Cli, ledger: Ledger, target: str
) -> None:
    connection = apsw.Connection(str(ledger(envelopes(5))))
    connection.execute("DELETE FROM events")
    connection.close()
    promote(cli, target)

    async def run() -> None:
        store = await opened(target)
        await record_in(store, [envelope("next")])
        await store.close()

    asyncio.run(run())
    assert postgres_rows(target, "SELECT ledger_id FROM events") == [(6,)]


def test_an_empty_ledger_can_be_promoted(cli: Cli, ledger: Ledger, target: str) -> None:
    ledger([])
    assert "0 events" in promote(cli, target)


def test_ten_thousand_events_arrive_and_large_ones_in_small_batches(
    cli: Cli, ledger: Ledger, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    payload = list(EVENT_COLUMNS).index("payload")
    insert_batch = transfer_in.insert_batch

    async def measure(database: Database, batch: Batch, progress: transfer_in.Progress) -> Any:
        sizes.append(sum(len(row[payload]) for row in batch.rows))
        return await insert_batch(database, batch, progress)

    monkeypatch.setattr(transfer_in, "insert_batch", measure)
    ledger([*envelopes(10_000), *envelopes(12, prefix="large", size=MIB)])
    assert "10012 events" in promote(cli, target)
    assert max(sizes) <= 5 * MIB
    assert sum(sizes) == 10_000 * 16 + 12 * MIB
    assert postgres_rows(target, "SELECT count(*), sum(length(payload)) FROM events") == [
        (10_012, sum(sizes))
    ]
