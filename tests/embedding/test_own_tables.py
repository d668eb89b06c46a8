"""Users' own tables in the ledger: created at the start, and readable at any time."""

import asyncio
from typing import Any

import apsw
import pytest

from ackbox import Event, Inbox, Tx
from ackbox.errors import InvalidStatement, StartupError, Stopped, Unavailable
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.testing import InboxHarness
from support.servers.server import read_ledger

ACCESS = "CREATE TABLE IF NOT EXISTS access (customer TEXT PRIMARY KEY)"
OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'"
COUNT_FOR_EVER = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
)


async def started(settings: dict[str, Any], *ddl: str) -> None:
    inbox = Inbox(settings)
    for sql in ddl:
        inbox.schema(sql)
    async with inbox.lifespan(None):
        pass


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE INDEX IF NOT EXISTS by_name ON access (customer)",
        "CREATE VIEW IF NOT EXISTS known AS SELECT customer FROM access",
        "CREATE TRIGGER IF NOT EXISTS lower AFTER INSERT ON access BEGIN SELECT 1; END",
        "ALTER TABLE access ADD COLUMN since TEXT",
        "INSERT OR IGNORE INTO access (customer) VALUES ('root')",
        "UPDATE access SET customer = lower(customer)",
        "DROP TABLE access",
        "CREATE TABLE a (n INTEGER); CREATE TABLE b (n INTEGER REFERENCES a (n))",
        "CREATE TABLE counted (n INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE TABLE counted (n INTEGER PRIMARY KEY AUTOINCREMENT); DROP TABLE counted",
        "ALTER TABLE access ADD COLUMN events TEXT; UPDATE access SET events = 1",
        "CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (body)",
        "CREATE TABLE copy AS SELECT * FROM access",
    ],
)
async def test_an_allowed_schema_is_applied(settings: dict[str, Any], ddl: str) -> None:
    await started(settings)
    ours = objects_of(settings)
    await started(settings, ACCESS, ddl)
    scratch = apsw.Connection(":memory:")
    scratch.execute(f"{ACCESS}; {ddl}")
    assert objects_of(settings) - ours == set(scratch.execute(OBJECTS))


def objects_of(settings: dict[str, Any]) -> set[tuple[Any, ...]]:
    return set(read_ledger(settings["db_path"], OBJECTS))


async def test_a_schema_runs_at_every_start(settings: dict[str, Any]) -> None:
    for _ in range(2):
        await started(
            settings, "CREATE TABLE IF NOT EXISTS starts (n)", "INSERT INTO starts DEFAULT VALUES"
        )
    assert len(read_ledger(settings["db_path"], "SELECT * FROM starts")) == 2


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE IF NOT EXISTS events (mine TEXT)",
        "CREATE TABLE IF NOT EXISTS Events (mine TEXT)",
        "CREATE TABLE sqlite_mine (n INTEGER)",
        "CREATE TEMP TABLE events (mine TEXT)",
        "CREATE TEMP VIEW status_counts AS SELECT 1",
        "CREATE INDEX mine ON events (updated_at)",
        "CREATE TRIGGER mine AFTER INSERT ON events BEGIN SELECT 1; END",
        "CREATE TABLE mine (id TEXT REFERENCES events (id))",
        "ALTER TABLE events ADD COLUMN mine TEXT",
        "ALTER TABLE access RENAME TO tombstones",
        "DROP TABLE audit",
        "DROP INDEX events_key",
        "DROP TRIGGER events_counted",
        "DELETE FROM events",
        "INSERT INTO sqlite_sequence VALUES ('events', 7)",
        "INSERT INTO cursors VALUES ('a', 'b', 'c')",
        "UPDATE status_counts SET events = 0",
        "PRAGMA journal_mode = delete",
        "ATTACH 'other.db' AS other",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT mine",
        "VACUUM",
        "CREATE TABEL mine (n INTEGER)",
        "SELECT * FROM nowhere",
    ],
)
async def test_a_forbidden_schema_stops_the_start_in_one_line(
    settings: dict[str, Any], ddl: str
) -> None:
    await started(settings)
    with pytest.raises(StartupError, match=r"inbox\.schema") as refused:
        await started(settings, ACCESS, ddl)
    assert "\n" not in str(refused.value)
    assert ddl[:12] in str(refused.value)
    await started(settings)


async def test_a_schema_that_is_refused_changes_nothing(settings: dict[str, Any]) -> None:
    with pytest.raises(StartupError):
        await started(settings, ACCESS, "CREATE TABEL mine (n INTEGER)")
    inbox = Inbox(settings)
    async with inbox.lifespan(None):
        with pytest.raises(InvalidStatement, match="no such table"):
            await inbox.read("SELECT * FROM access")


async def test_a_long_statement_is_shown_short(settings: dict[str, Any]) -> None:
    with pytest.raises(StartupError) as refused:
        await started(settings, "CREATE TABEL mine (\n" + "  n INTEGER,\n" * 100)
    assert len(str(refused.value)) < 300


async def test_reading_returns_rows_by_column_name(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    inbox.schema(ACCESS)
    inbox.schema("INSERT OR IGNORE INTO access VALUES ('a'), ('b')")
    async with inbox.lifespan(None):
        assert await inbox.read("SELECT customer FROM access WHERE customer = :c", c="b") == [
            {"customer": "b"}
        ]
        assert await inbox.read("SELECT customer FROM access WHERE 0") == []
        assert await inbox.read("SELECT count(*) AS n, max(customer) AS m FROM access") == [
            {"n": 2, "m": "b"}
        ]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM access",
        "INSERT INTO access VALUES ('x') RETURNING customer",
        "SELECT 1; DELETE FROM access",
        "CREATE TABLE mine (n INTEGER)",
        "ATTACH 'other.db' AS other",
        "PRAGMA journal_mode = delete",
        "BEGIN",
        "SELECT * FROM nowhere",
        "SELEKT 1",
        "SELECT :missing",
        "",
    ],
)
async def test_reading_can_only_read(settings: dict[str, Any], sql: str) -> None:
    inbox = Inbox(settings)
    inbox.schema(ACCESS)
    inbox.schema("INSERT OR IGNORE INTO access VALUES ('a')")
    async with inbox.lifespan(None):
        with pytest.raises(InvalidStatement) as refused:
            await inbox.read(sql)
        assert "\n" not in str(refused.value)
        assert await inbox.read("SELECT customer FROM access") == [{"customer": "a"}]


async def test_a_read_that_takes_too_long_is_stopped(settings: dict[str, Any]) -> None:
    async with Inbox(settings).lifespan(None):
        reader = SqliteReader(settings["db_path"], seconds=0.1)
        with pytest.raises(Unavailable, match="too long"):
            await asyncio.wait_for(reader.query(COUNT_FOR_EVER, {}), 10)
        assert await reader.query("SELECT 1 AS one", {}) == [{"one": 1}]
        await reader.close()


async def test_reading_after_the_stop_is_refused(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    async with inbox.lifespan(None):
        pass
    with pytest.raises(Stopped):
        await inbox.read("SELECT 1")


@pytest.mark.parametrize("ddl", ["CREATE TABLE events (id TEXT)", "DROP TABLE Events"])
async def test_a_name_of_ackbox_is_named_in_the_refusal(settings: dict[str, Any], ddl: str) -> None:
    with pytest.raises(StartupError, match="events is the name of a table of ackbox"):
        await started(settings, ddl)


async def test_a_full_text_index_is_a_table_like_others(settings: dict[str, Any]) -> None:
    """The index keeps its words in tables of its own, and asks SQLite whether others changed
    them."""
    inbox = Inbox(settings)
    inbox.schema("CREATE VIRTUAL TABLE IF NOT EXISTS notes USING fts5(body)")

    @inbox.on("note")
    async def keep(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO notes (body) VALUES (:body)", body=event.text())

    async with InboxHarness(inbox) as box:
        await box.post("note", "hello world")
        await box.run_until_idle()
        sql = "SELECT body FROM notes WHERE notes MATCH :word"
        assert await box.read(sql, word="hello") == [{"body": '"hello world"'}]
        assert await box.read(sql, word="bye") == []
