"""`ackbox promote`: refusals, and promotions that were interrupted."""

import asyncio
import os
from pathlib import Path

import apsw
import asyncpg
import pytest

from ackbox.errors import StoreError
from ackbox.model import Cursor
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.store import SqliteStore
from support.databases.postgres import TESTS_PATH
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.promoting import execute, halfway, opened, postgres_rows, promote, sqlite_rows
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli, Ledger, run
from support.workers.event_runs import DONE, claim, settle, work


def test_a_running_server_is_named(cli: Cli, ledger: Ledger, target: str) -> None:
    lock = LedgerLock(ledger(envelopes(3)))
    lock.describe("http://127.0.0.1:8123")
    refusal = cli("promote", "ackbox.db", target).line
    lock.release()
    assert f"process {os.getpid()} at http://127.0.0.1:8123" in refusal


def test_a_target_with_events_of_its_own_is_refused(cli: Cli, ledger: Ledger, target: str) -> None:
    async def fill() -> None:
        store = await opened(target)
        await record_in(store, [envelope("of its own")])
        await store.close()

    asyncio.run(fill())
    ledger(envelopes(3))
    refusal = cli("promote", "ackbox.db", target).line
    assert "The schema ackbox holds a ledger already" in refusal
    assert "another ACKBOX_DATABASE_SCHEMA" in refusal
    assert postgres_rows(target, "SELECT idempotency_key FROM events") == [("of its own",)]
    done = cli("promote", "ackbox.db", target, DATABASE_SCHEMA="second")
    assert "(schema second), verified" in done.out


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO cursors VALUES ('feed', 'page-1', now())",
        "INSERT INTO audit (at, actor, action, detail) VALUES (now(), 'ann', 'replay', '{}')",
        "SELECT ackbox.enqueue('a', '1')",
        "INSERT INTO tombstones VALUES ('s', 'k', gen_random_uuid(), '', now(), '', now())",
    ],
)
def test_a_target_with_anything_in_it_is_refused(
    cli: Cli, ledger: Ledger, target: str, sql: str
) -> None:
    cli("migrate", DATABASE_URL=target)
    execute(target, sql)
    ledger(envelopes(3))
    assert "holds a ledger already" in cli("promote", "ackbox.db", target).line


def test_a_finished_promotion_is_refused(cli: Cli, ledger: Ledger, target: str) -> None:
    ledger(envelopes(3))
    promote(cli, target)
    assert "was finished at 2" in cli("promote", "ackbox.db", target).line


def test_a_target_that_a_server_uses_is_refused(cli: Cli, ledger: Ledger, target: str) -> None:
    ledger(envelopes(3))
    refused: list[str] = []

    async def go() -> None:
        store = await opened(target)
        await store.prove_writable()
        done = await asyncio.to_thread(cli, "promote", "ackbox.db", target)
        refused.append(done.line)
        await store.prove_writable()
        await store.close()

    asyncio.run(go())
    assert "Other ackbox processes use the ledger" in refused[0]
    promote(cli, target)


def test_what_is_no_ledger_or_not_there_is_one_line(cli: Cli, target: str) -> None:
    assert "no ledger at" in cli("promote", "nowhere.db", target).line
    (cli.folder / "text.db").write_text("x" * 200)
    assert "not a SQLite database" in cli("promote", "text.db", target).line


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://a b"])
def test_a_bad_address_is_one_line(cli: Cli, ledger: Ledger, url: str) -> None:
    ledger([])
    assert "DATABASE_URL must be" in cli("promote", "ackbox.db", url).line


def test_no_address_is_one_line(cli: Cli, ledger: Ledger) -> None:
    ledger([])
    assert "set ACKBOX_DATABASE_URL" in cli("promote", "ackbox.db").line


def test_an_unreachable_server_is_one_line(cli: Cli, ledger: Ledger) -> None:
    ledger([])
    refusal = cli("promote", "ackbox.db", "postgresql://u:secret@127.0.0.1:1/x").line
    assert "cannot be reached" in refusal
    assert "secret" not in refusal


def test_a_text_that_postgresql_cannot_hold_is_named(cli: Cli, ledger: Ledger, target: str) -> None:
    connection = apsw.Connection(str(ledger(envelopes(3))))
    connection.execute("UPDATE events SET sender = 'a' || char(0) WHERE ledger_id = 2")
    connection.close()
    refusal = cli("promote", "ackbox.db", target).line
    assert "sender of events 2 holds a NUL" in refusal


@pytest.mark.parametrize("progress", ["(10 %)", "(60 %)", "verified "])
def test_a_killed_promotion_continues_where_it_stopped(
    cli: Cli, ledger: Ledger, target: str, tmp_path: Path, progress: str
) -> None:
    path = ledger([envelope(f"{n}", lane=f"lane-{n % 7}") for n in range(600)])
    halfway(tmp_path, target, progress)
    transferred = postgres_rows(target, "SELECT count(*) FROM events")[0][0]
    promote(cli, target)
    columns = "ledger_id, id, idempotency_key, status, claimable_at, payload"
    here = sqlite_rows(path, "events", columns)
    assert 0 < transferred <= len(here)
    assert postgres_rows(target, f"SELECT {columns} FROM events ORDER BY 1") == here
    counts = postgres_rows(target, "SELECT status, sum(events)::int FROM status_counts GROUP BY 1")
    assert counts == [("pending", 600)]


def test_kills_at_many_moments_lose_and_double_nothing(
    cli: Cli, tmp_path: Path, target: str
) -> None:
    seed(tmp_path / "ackbox.db", _many)
    for tenth in range(2, 9, 2):
        halfway(tmp_path, target, f"({tenth}0 %)")
    promote(cli, target)
    sql = "SELECT ledger_id, payload FROM events ORDER BY 1"
    assert postgres_rows(target, sql) == sqlite_rows(
        tmp_path / "ackbox.db", "events", "ledger_id, payload"
    )
    assert postgres_rows(target, "SELECT count(*) FROM audit") == [(600,)]


async def _many(store: SqliteStore) -> None:
    sent = envelopes(600)
    await record_in(store, sent, cursor=Cursor("feed", "1"))
    await work(store, sent)
    await store.replay([event.id for event in sent], actor="ann")


def test_an_unfinished_promotion_is_not_served(
    cli: Cli, ledger: Ledger, target: str, tmp_path: Path
) -> None:
    ledger(envelopes(600))
    halfway(tmp_path, target, "(30 %)")
    refusal = run("serve", folder=tmp_path, DATABASE_URL=target, PORT="0").err
    assert "unfinished promotion of ackbox.db" in refusal
    for command in ("list", "export"):
        done = cli("events", command, DATABASE_URL=target)
        assert done.out == ""
        assert "unfinished promotion of ackbox.db" in done.line
    promote(cli, target)

    async def serve() -> None:
        await (await opened(target)).close()

    asyncio.run(serve())


def test_another_file_cannot_continue_it(
    cli: Cli, ledger: Ledger, target: str, tmp_path: Path
) -> None:
    ledger(envelopes(600))
    halfway(tmp_path, target, "(30 %)")
    seed(tmp_path / "other.db", States().seed)
    assert "another file" in cli("promote", "other.db", target).line


def test_a_file_that_was_written_to_meanwhile_cannot_continue(
    cli: Cli, ledger: Ledger, target: str, tmp_path: Path
) -> None:
    path = ledger(envelopes(600))
    halfway(tmp_path, target, "(30 %)")
    seed(path, work_one)
    assert "was written to since" in cli("promote", "ackbox.db", target).line


async def work_one(store: SqliteStore) -> None:
    await settle(store, await claim(store, limit=1), DONE)


def test_a_row_that_differs_from_the_file_is_found(
    cli: Cli, ledger: Ledger, target: str, tmp_path: Path
) -> None:
    ledger(envelopes(600))
    halfway(tmp_path, target, "(30 %)")
    execute(target, "UPDATE events SET payload = 'other' WHERE ledger_id = 7")
    line = cli("promote", "ackbox.db", target).err.splitlines()[-1]
    assert "differ from the file" in line
    assert postgres_rows(target, "SELECT finished_at FROM promotion") == [(None,)]


def test_an_event_too_many_is_found(cli: Cli, ledger: Ledger, target: str, tmp_path: Path) -> None:
    ledger(envelopes(600))
    halfway(tmp_path, target, "(30 %)")
    execute(
        target,
        "INSERT INTO events (ledger_id, id, source, idempotency_key, event_type, transport,"
        " created_at, updated_at, last_seen_at, content_type, payload_sha256, payload)"
        " SELECT 9999, gen_random_uuid(), 's', 'extra', 't', '', now(), now(), now(), '', '', ''",
    )
    line = cli("promote", "ackbox.db", target).err.splitlines()[-1]
    assert "the file has 600 events, the database has 601" in line


def test_a_server_that_looks_at_the_same_moment_is_waited_for(
    cli: Cli, ledger: Ledger, target: str
) -> None:
    """Either the promotion sees the connection of the server, or the server sees that a promotion
    has begun."""
    ledger(envelopes(3))
    cli("migrate", DATABASE_URL=target)
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"

    async def go() -> None:
        looking = await asyncpg.connect(target, server_settings={"search_path": TESTS_PATH})
        undone = looking.transaction()
        await undone.start()
        await looking.fetch("SELECT * FROM promotion")
        promoting = asyncio.create_task(asyncio.to_thread(cli, "promote", "ackbox.db", target))
        while not await looking.fetch(waits):
            assert not promoting.done()
        await undone.rollback()
        assert (await promoting).code == 0
        await looking.close()

    asyncio.run(go())


def test_a_server_that_starts_while_one_begins_waits_and_is_refused(cli: Cli, target: str) -> None:
    cli("migrate", DATABASE_URL=target)

    async def go() -> None:
        promoting = await asyncpg.connect(target, server_settings={"search_path": TESTS_PATH})
        begun = promoting.transaction()
        await begun.start()
        await promoting.execute("LOCK TABLE promotion IN ACCESS EXCLUSIVE MODE")
        starting = asyncio.create_task(opened(target))
        while not await promoting.fetch("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not starting.done()
        await promoting.execute(
            "INSERT INTO promotion VALUES (1, 'a.db', 'x', 'events', '[0]', 0, now(), NULL)"
        )
        await begun.commit()
        with pytest.raises(StoreError, match="unfinished promotion"):
            await starting
        await promoting.close()

    asyncio.run(go())
