"""Statements that a handler gives to `tx` run in the commit that completes its event, or not at
all."""

import asyncio
from typing import Any

import apsw
import pytest

from ackbox.model import Done, Outcome, RetryLater, Settlement, Statement
from ackbox.stores.sqlite.migrations import all_migrations, apply
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.sqlite.write.effects import OWN_TABLES, Effects
from ackbox.stores.sqlite.write.queue import SqliteQueue
from ackbox.stores.sqlite.write.recovery import recover
from ackbox.telemetry import Committed
from support.faults.faulty_vfs import FaultyVfs, io_error_on_sync
from support.faults.gathering import gathering
from support.ledgers.backends import OpenStore, all_rows
from support.ledgers.events import envelope, envelopes, noon, record_in
from support.ledgers.facts import Facts
from support.workers.queue_worker import QueueWorker, done, retry_later

SCHEMA = [
    "CREATE TABLE mine (id TEXT PRIMARY KEY, n INTEGER)",
    "CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT)",
    "CREATE TABLE log (what TEXT)",
    "CREATE TRIGGER mine_log AFTER INSERT ON mine BEGIN INSERT INTO log VALUES (new.id); END",
    "CREATE VIEW mine_ids AS SELECT id FROM mine",
    "CREATE TABLE parent (id TEXT PRIMARY KEY)",
    "CREATE TABLE child (id TEXT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE hard (id TEXT UNIQUE ON CONFLICT ROLLBACK)",
]
ENDLESS = """
INSERT INTO mine (id) WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n)
SELECT 'x' FROM n WHERE n < 0
"""


@pytest.fixture
async def store(faulty: SqliteStore) -> SqliteStore:
    await faulty.apply_tables(SCHEMA)
    return faulty


@pytest.fixture
def hasty(store: SqliteStore) -> SqliteStore:
    """The store, which stops a statement after a tenth of a second."""
    store.queue = SqliteQueue(store._writer, Effects(seconds=0.1), noon)
    return store


async def rows(store: SqliteStore, sql: str) -> list[Any]:
    return await store._writer.submit(lambda connection: connection.execute(sql).fetchall())


async def settle(store: SqliteStore, *outcomes: Outcome) -> list[Outcome | None]:
    """Record one event for each outcome and settle them together. Return the written outcomes."""
    me = QueueWorker(store.queue)
    await record_in(store, envelopes(len(outcomes), prefix=f"e{len(await rows(store, EVENTS))}"))
    claims = await me.claim(len(outcomes))
    batch = [Settlement(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    written = await store.queue.settle(batch)
    return [written.get(claim.id) for claim in claims]


EVENTS = "SELECT 1 FROM events"
ADD = "INSERT INTO mine (id, n) VALUES (:id, :n)"


async def test_effects_commit_with_the_completion(store: SqliteStore) -> None:
    (written,) = await settle(store, done(ADD, "UPDATE mine SET n = n + 1", id="a", n=1))
    assert isinstance(written, Done)
    assert await rows(store, "SELECT * FROM mine") == [("a", 2)]
    assert await rows(store, "SELECT what FROM log") == [("a",)]
    assert [row["status"] for row in await store._writer.submit(all_rows)] == ["completed"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("INSERT INTO mine (id) VALUES ('taken')", "UNIQUE"),
        ("INSERT INTO nowhere VALUES (1)", "no such table"),
        ("INSERT INTO mine (id, n) VALUES (:id, :missing)", ":missing was not given"),
        ("INSERT INTO child VALUES ('no parent')", "FOREIGN KEY"),
        ("nonsense", "only INSERT"),
        ("SELECT 1", "only INSERT"),
        ("INSERT nonsense", "syntax error"),
        ("INSERT OR ROLLBACK INTO mine (id) VALUES ('taken')", "OR ROLLBACK"),
        ("INSERT or/* */ROLLBACK INTO mine (id) VALUES ('new')", "OR ROLLBACK"),
        ("UPDATE OR ROLLBACK mine SET id = 'taken'", "OR ROLLBACK"),
        ("INSERT INTO hard VALUES ('taken')", "UNIQUE"),
        ("PRAGMA user_version = 5", "only INSERT"),
        ("PRAGMA journal_mode = delete", "only INSERT"),
        ("ATTACH ':memory:' AS other", "only INSERT"),
        ("DETACH main", "only INSERT"),
        ("CREATE TABLE more (id)", "only INSERT"),
        ("CREATE TEMP TABLE events (id)", "only INSERT"),
        ("DROP TABLE mine", "only INSERT"),
        ("ALTER TABLE mine ADD COLUMN x", "only INSERT"),
        ("CREATE INDEX i ON mine (n)", "only INSERT"),
        ("VACUUM", "only INSERT|VACUUM"),
        ("REINDEX", "only INSERT"),
        ("ANALYZE", "only INSERT"),
        ("BEGIN", "only INSERT"),
        ("COMMIT", "only INSERT"),
        ("ROLLBACK", "only INSERT"),
        ("SAVEPOINT x", "only INSERT"),
        ("RELEASE job", "only INSERT"),
        ("ROLLBACK TO job", "only INSERT"),
        ("INSERT INTO mine (id) VALUES ('b'); COMMIT", "only INSERT"),
        ("DELETE FROM events", "only INSERT"),
        ("UPDATE EVENTS SET attempts = 0", "only INSERT"),
        ('DELETE FROM "Events"', "only INSERT"),
        ("DELETE FROM [events]", "only INSERT"),
        ("DELETE FROM main.`status_counts`", "only INSERT"),
        ("INSERT INTO audit (at, actor, action, detail) VALUES ('', '', '', '')", "only INSERT"),
        ("UPDATE sqlite_sequence SET seq = 0", "only INSERT"),
        ("INSERT INTO mine SELECT id, 1 FROM events", "only INSERT"),
        ("WITH e AS (SELECT id FROM events) INSERT INTO mine SELECT id, 1 FROM e", "only INSERT"),
        ("INSERT INTO mine SELECT id, 1 FROM (SELECT id FROM events) AS e", "only INSERT"),
        ("INSERT INTO mine (id) VALUES ('b') RETURNING (SELECT id FROM events)", "only INSERT"),
        ("INSERT INTO mine (id, n) VALUES ('b', (SELECT count(*) FROM events))", "only INSERT"),
        ("DELETE FROM mine WHERE EXISTS (SELECT 1 FROM events)", "only INSERT"),
        ("INSERT INTO mine SELECT name, 1 FROM sqlite_schema", "only INSERT"),
        ("INSERT INTO mine SELECT name, 1 FROM pragma_table_list", "only INSERT|author"),
    ],
)
async def test_a_statement_that_may_not_or_cannot_run_fails_its_event_alone(
    store: SqliteStore, facts: Facts, sql: str, reason: str
) -> None:
    await store._writer.submit(lambda c: c.execute("INSERT INTO mine (id) VALUES ('taken')").get)
    await store._writer.submit(lambda c: c.execute("INSERT INTO hard (id) VALUES ('taken')").get)
    before = await rows(store, "SELECT * FROM sqlite_schema ORDER BY rowid")
    written = await settle(store, done(ADD, id="1", n=1), done(ADD, sql, id="2", n=2), done())
    assert isinstance(written[0], Done)
    assert isinstance(written[2], Done)
    failed = written[1]
    assert isinstance(failed, RetryLater)
    assert failed.failure.code == "tx"
    assert any(part in failed.failure.error for part in reason.split("|")), failed.failure.error
    assert await rows(store, "SELECT id FROM mine") == [("1",), ("taken",)]  # by its index
    stored = await store._writer.submit(all_rows)
    assert [row["status"] for row in stored] == ["completed", "pending", "completed"]
    assert stored[1]["last_error"] == failed.failure.error
    assert stored[1]["attempts"] == 1
    assert await rows(store, "SELECT * FROM sqlite_schema ORDER BY rowid") == before
    await record_in(store, [envelope("the writer still works")])


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 1 << 70, "\ud800", 1j])
async def test_a_value_that_sql_cannot_hold_fails_its_event_alone(
    store: SqliteStore, value: object
) -> None:
    written = await settle(store, done(ADD, id="1", n=1), done(ADD, id="2", n=value))
    assert isinstance(written[0], Done)
    assert isinstance(written[1], RetryLater)
    assert await rows(store, "SELECT id FROM mine") == [("1",)]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH v (id) AS (VALUES ('a')) INSERT INTO mine SELECT id, 1 FROM v",
        "INSERT INTO mine SELECT id || 'b', 1 FROM mine_ids RETURNING id",
        "INSERT INTO mine (id) VALUES ('a') ON CONFLICT (id) DO UPDATE SET n = n + 1",
        "INSERT OR REPLACE INTO mine (id) VALUES ('or rollback -- events')",
        "INSERT INTO numbered (what) VALUES ('OR ROLLBACK'), ('b''; COMMIT')",
        "DELETE FROM mine WHERE id IN (SELECT id FROM mine_ids)",
        "INSERT INTO parent VALUES ('p'); INSERT INTO child VALUES ('p')",
        "UPDATE mine SET n = abs(-1) /* events */",
    ],
)
async def test_an_allowed_statement_runs(store: SqliteStore, sql: str) -> None:
    written = await settle(store, done(), done(sql))
    assert [type(outcome) for outcome in written] == [Done, Done]


async def test_a_statement_over_its_time_is_stopped_and_only_its_event_fails(
    hasty: SqliteStore,
) -> None:
    written = await settle(hasty, done(ADD, id="1", n=1), done(ENDLESS), done(ADD, id="2", n=1))
    assert [type(outcome) for outcome in written] == [Done, RetryLater, Done]
    assert isinstance(written[1], RetryLater)
    assert "longer than 0.1 s" in written[1].failure.error
    assert await rows(hasty, "SELECT id FROM mine") == [("1",), ("2",)]


async def test_events_recorded_beside_a_lost_transaction_are_kept(
    hasty: SqliteStore, vfs: FaultyVfs
) -> None:
    """Stopping a statement makes SQLite roll back the whole transaction."""
    me = QueueWorker(hasty.queue)
    await record_in(hasty, envelopes(2))
    claims = await me.claim()
    outcomes = (done(ADD, id="1", n=1), done(ENDLESS))
    batch = [Settlement(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
    async with gathering(hasty, vfs):
        settling = asyncio.ensure_future(hasty.queue.settle(batch))
        recording = asyncio.ensure_future(record_in(hasty, envelopes(5, prefix="beside")))
    written = await settling
    assert len(await recording) == 5
    assert [type(written[claim.id]) for claim in claims] == [Done, RetryLater]
    assert len(await rows(hasty, EVENTS)) == 8
    assert await rows(hasty, "SELECT id FROM mine") == [("1",)]


async def test_effects_of_many_events_share_commits(store: SqliteStore, facts: Facts) -> None:
    await settle(store, done())
    facts.clear()
    written = await settle(store, *(done(ADD, id=str(n), n=n) for n in range(50)))
    assert [type(outcome) for outcome in written] == [Done] * 50
    assert len(facts.of(Committed)) <= 20  # some of these are the record and the claim


async def test_a_commit_of_unknown_outcome_applies_effects_once(
    store: SqliteStore, vfs: FaultyVfs
) -> None:  # F8
    me = QueueWorker(store.queue)
    await record_in(store, [envelope()])
    claim = await me.claim_one()
    outcome = done("INSERT INTO log VALUES ('once')")
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(Exception, match="unknown"):
        await me.settle(claim, outcome)
    assert dict(await me.settle(claim, outcome)) == {claim.id: outcome}
    assert await rows(store, "SELECT what FROM log") == [("once",)]


async def test_nothing_is_applied_when_the_claim_was_lost(
    open_it: OpenStore,
) -> None:  # F17
    store = await open_it()
    await store.apply_tables(SCHEMA)
    me = QueueWorker(store.queue)
    await record_in(store, [envelope()])
    stale = await me.claim_one()
    await recover(store._writer, noon())
    await me.claim_one()
    assert dict(await me.settle(stale, done(ADD, id="stale", n=1))) == {}
    assert await rows(store, "SELECT * FROM mine") == []


async def test_the_guard_is_not_in_the_way_of_our_own_statements(store: SqliteStore) -> None:
    """The authorizer stays installed, and claims, settlements, checkpoints and schemas still
    work."""
    await settle(store, done(ADD, id="1", n=1))
    assert store._writer._connection is not None
    assert store._writer._connection.authorizer is not None
    await store.apply_tables(["CREATE TABLE IF NOT EXISTS later (id TEXT)"])
    written = await settle(store, done(), retry_later(), done("INSERT INTO later VALUES ('x')"))
    assert [type(outcome) for outcome in written] == [Done, RetryLater, Done]
    await recover(store._writer, noon())
    await store.prove_writable()
    await store._writer.submit(
        lambda c: c.pragma("wal_checkpoint(truncate)"), outside_transaction=True
    )


def test_every_table_of_ours_is_guarded() -> None:
    connection = apsw.Connection(":memory:")
    apply(connection, all_migrations())
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    assert tables <= OWN_TABLES | {name for name in names if name.startswith("sqlite_")}


async def test_internal_tables_of_sqlite_are_guarded_too(store: SqliteStore) -> None:
    await store._writer.submit(lambda c: c.execute("ANALYZE").get)
    (written,) = await settle(store, done("DELETE FROM sqlite_stat1"))
    assert isinstance(written, RetryLater)


async def test_effects_may_be_given_parameters_of_every_sql_type(store: SqliteStore) -> None:
    values: dict[str, object] = {"a": None, "b": 1.5, "c": b"\0", "d": "\0ü", "e": -(1 << 63)}
    (written,) = await settle(
        store,
        Done(
            "handled",
            [Statement("INSERT INTO log VALUES (typeof(:a)||typeof(:b)||typeof(:c))", values)],
            retry_later(),
        ),
    )
    assert isinstance(written, Done)
    assert await rows(store, "SELECT what FROM log") == [("nullrealblob",)]


async def test_a_statement_that_names_many_parameters_is_refused_before_it_is_prepared(
    store: SqliteStore,
) -> None:
    """SQLite compares each name with all earlier names: 20,000 names take seconds."""
    names = ", ".join(f"@p{n}" for n in range(20_000))
    (failed,) = await settle(store, done(f"DELETE FROM mine WHERE id IN ({names})"))
    assert isinstance(failed, RetryLater)
    assert failed.failure.error.startswith("tx: too many SQL variables")
