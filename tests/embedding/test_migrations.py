"""`inbox.migration`: declared in the application, applied at its start (N12)."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from ackbox import Event, Inbox, Tx
from ackbox.errors import StartupError
from ackbox.testing import InboxHarness

ORDERS = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)"
TOTAL = "ALTER TABLE orders ADD COLUMN total INTEGER"


def make(settings: dict[str, Any], *migrations: tuple[str, str]) -> Inbox:
    inbox = Inbox(settings)
    for name, sql in migrations:
        inbox.migration(name, sql)
    inbox.schema(ORDERS)
    return inbox


async def test_a_migration_runs_at_the_first_start_after_the_schema(
    settings: dict[str, Any],
) -> None:
    for _ in range(3):
        inbox = make(
            settings, ("0001_total", TOTAL), ("0002", "INSERT INTO orders VALUES ('a', 1)")
        )
        async with inbox.lifespan(None):
            assert await inbox.read("SELECT * FROM orders") == [{"id": "a", "total": 1}]


async def test_the_log_names_each_migration_that_was_applied(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ackbox")
    for _ in range(2):
        async with make(settings, ("0001_total", TOTAL)).lifespan(None):
            pass
    lines = [record.getMessage() for record in caplog.records]
    assert sum("migration applied" in line and "0001_total" in line for line in lines) == 1


async def test_changed_sql_stops_the_start_and_changes_nothing(settings: dict[str, Any]) -> None:
    async with make(settings, ("0001_total", TOTAL)).lifespan(None):
        pass
    changed = make(settings, ("0001_total", TOTAL + " DEFAULT 7"), ("0002", "DROP TABLE orders"))
    with pytest.raises(StartupError, match="Restore its SQL"):
        async with changed.lifespan(None):
            pass
    async with make(settings, ("0001_total", TOTAL)).lifespan(None):
        pass


async def test_a_copy_of_the_ledger_knows_its_migrations(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """A backup is such a copy."""
    async with make(settings, ("0001_total", TOTAL)).lifespan(None) as _:
        pass
    copy = tmp_path / "copy.db"
    await asyncio.to_thread(shutil.copy, settings["db_path"], copy)
    restored = make({**settings, "db_path": copy}, ("0001_total", TOTAL))
    async with restored.lifespan(None):
        assert await restored.read("SELECT total FROM orders") == []


async def test_the_harness_applies_migrations(settings: dict[str, Any]) -> None:
    inbox = make(settings, ("0001_total", TOTAL))

    @inbox.on("order")
    async def add(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO orders VALUES (:id, 7)", id=event.id)

    async with InboxHarness(inbox) as box:
        await box.post("order")
        await box.run_until_idle()
        await box.restart()
        assert await box.read("SELECT total FROM orders") == [{"total": 7}]


async def test_tx_and_read_cannot_change_the_record(settings: dict[str, Any]) -> None:
    inbox = make(settings, ("0001_total", TOTAL))

    @inbox.on("order")
    async def erase(event: Event, tx: Tx) -> None:
        tx.execute("DELETE FROM inbox_migrations")

    async with InboxHarness(inbox) as box:
        await box.post("order")
        await box.run_one(raise_errors=False)
        assert await box.read("SELECT name FROM inbox_migrations") == [{"name": "0001_total"}]


@pytest.mark.parametrize(
    ("name", "sql", "reason"),
    [
        ("", TOTAL, "1 to 255 characters"),
        ("a\nb", TOTAL, "control character"),
        (7, TOTAL, "name and SQL as text"),
        ("0001", None, "name and SQL as text"),
        ("0001_total", TOTAL, "declared twice"),
        ("0002", "SELECT 'a\0b'", r"inbox\.migration\('0002'\): the SQL contains a NUL"),
        ("0002", "SELECT '\ud800'", r"inbox\.migration\('0002'\): the SQL contains a lone surr"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(name: Any, sql: Any, reason: str) -> None:
    inbox = Inbox()
    inbox.migration("0001_total", TOTAL)
    with pytest.raises(StartupError, match=reason):
        inbox.migration(name, sql)


@pytest.mark.parametrize("sql", ["SELECT 'a\0b'", "SELECT '\ud800'"])
def test_a_schema_that_is_no_text_of_a_database_is_refused_where_it_stands(sql: str) -> None:
    with pytest.raises(StartupError, match=r"^inbox\.schema\(.*: the SQL contains a"):
        Inbox().schema(sql)
