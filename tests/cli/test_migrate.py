"""`ackbox migrate` (P11)."""

import shutil
from pathlib import Path

import apsw
import pytest

from ackbox.stores.sqlite import migrations
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelopes, record_in
from support.ledgers.released_ledgers import sqlite_file
from support.servers.cli import Cli, Ledger
from support.servers.server import Server

ALL = migrations.all_migrations()


def alter(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql).fetchall()  # an unread result would end the script
    connection.close()


def schema(path: Path) -> list[object]:
    """Return all properties of a ledger except the time of its creation."""
    connection = apsw.Connection(str(path))
    tables = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    ).fetchall()
    applied = connection.execute("SELECT version, name, checksum FROM schema_migrations").fetchall()
    status_counts = connection.execute("SELECT * FROM status_counts").fetchall()
    pragmas = [connection.pragma(p) for p in ("application_id", "auto_vacuum", "journal_mode")]
    connection.close()
    return [tables, applied, status_counts, pragmas]


def traces(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_migrate_makes_the_ledger_and_says_what_it_applied(cli: Cli, tmp_path: Path) -> None:
    applied = "".join(f"applied {each.version:04} {each.name}\n" for each in ALL)
    assert applied.startswith("applied 0001 ledger\n")
    assert cli("migrate").out == applied
    assert (tmp_path / "ackbox.db").exists()
    assert cli("migrate").out == "ackbox.db is up to date\n"


def test_migrate_applies_only_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    shutil.copy(sqlite_file("0.1"), tmp_path / "ackbox.db")
    names = [f"{migration.version:04} {migration.name}" for migration in ALL[1:]]
    assert cli("migrate", "--check").line.startswith(f"ackbox.db lacks {', '.join(names)}.")
    assert cli("migrate").out == "".join(f"applied {name}\n" for name in names)
    assert cli("migrate", "--check").code == 0


def test_check_fails_without_a_ledger_and_makes_none(cli: Cli, tmp_path: Path) -> None:
    assert "no ledger" in cli("migrate", "--check").line
    assert traces(tmp_path) == {}


def test_check_leaves_no_trace(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    path = ledger(envelopes(3))
    alter(path, "DELETE FROM schema_migrations")
    before = traces(tmp_path)
    assert "0001 ledger" in cli("migrate", "--check").line
    assert traces(tmp_path) == before


def test_check_works_while_a_server_runs_and_migrate_does_not(cli: Cli, server: Server) -> None:
    db = str(server.ledger)
    assert cli("migrate", "--check", DB_PATH=db).code == 0
    refusal = cli("migrate", DB_PATH=db).line
    assert f"process {server.pid}" in refusal
    assert f"http://127.0.0.1:{server.port}" in refusal


@pytest.mark.parametrize("command", [["migrate"], ["migrate", "--check"], ["events", "list"]])
def test_a_ledger_of_a_newer_release_is_refused(
    cli: Cli, ledger: Ledger, command: list[str]
) -> None:
    alter(
        ledger([]), "INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', '')"
    )
    assert "newer ackbox" in cli(*command).line


def test_a_migration_that_was_edited_is_noticed(cli: Cli, ledger: Ledger) -> None:
    alter(ledger([]), "UPDATE schema_migrations SET checksum = 'another'")
    assert "checksum differs" in cli("migrate", "--check").line


# P11
def test_sql_needs_no_database(cli: Cli, tmp_path: Path) -> None:
    done = cli("migrate", "--sql", DB_PATH="nowhere/x.db")
    assert done.code == 0
    assert traces(tmp_path) == {}


# P11
async def test_the_printed_sql_makes_the_same_ledger_as_migrate(cli: Cli, tmp_path: Path) -> None:
    printed = tmp_path / "printed.db"
    alter(printed, cli("migrate", "--sql").out)
    cli("migrate")
    assert schema(printed) == schema(tmp_path / "ackbox.db")
    assert cli("migrate", "--check", DB_PATH="printed.db").code == 0
    store = await open_sqlite(printed)
    assert len(await record_in(store, envelopes(2))) == 2
    await store.close()


def test_check_and_sql_exclude_each_other(cli: Cli) -> None:
    assert cli("migrate", "--check", "--sql").code == 2
