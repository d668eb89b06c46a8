"""`ackbox migrate MODULE:INBOX`: the user's own tables, on both databases (N12)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.postgres_cli import PostgresLedger
from support.servers.cli import run
from support.servers.server import read_ledger

APP = """
from ackbox import Inbox

inbox = Inbox()
inbox.schema("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
inbox.migration("0001_total", "ALTER TABLE orders ADD COLUMN total INTEGER")
"""
SECOND = 'inbox.migration("0002_first", "INSERT INTO orders VALUES (\'first\', 1)")\n'


@pytest.fixture
def target(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(find_installs()[-1]))
    yield made
    made.server.recycle_database(made.url)


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {"DB_PATH": "ackbox.db"}
    return {"DATABASE_URL": request.getfixturevalue("target").url}


def test_migrate_applies_the_users_migrations_once(
    tmp_path: Path, settings: dict[str, str]
) -> None:  # N12
    def migrate(*options: str) -> str:
        done = run("migrate", "app:inbox", *options, folder=tmp_path, stdin=b"", **settings)
        return done.out or done.line

    (tmp_path / "app.py").write_text(APP)
    assert migrate().endswith("applied 0001_total\n")
    assert migrate().endswith(" is up to date\n")
    (tmp_path / "app.py").write_text(APP + SECOND)
    assert "lacks 0002_first." in migrate("--check")
    assert "`ackbox migrate app:inbox`" in migrate("--check")
    assert migrate() == "applied 0002_first\n"
    assert migrate("--check").endswith(" is up to date\n")
    (tmp_path / "app.py").write_text(APP.replace("total INTEGER", "total TEXT"))
    assert "inbox.migration('0001_total') was applied with other SQL" in migrate()
    assert "inbox.migration('0001_total') was applied with other SQL" in migrate("--check")


def test_a_migration_that_fails_is_one_line(tmp_path: Path, settings: dict[str, str]) -> None:
    (tmp_path / "app.py").write_text(APP + 'inbox.migration("0002", "DROP TABLE nowhere")\n')
    failed = run("migrate", "app:inbox", folder=tmp_path, stdin=b"", **settings)
    assert "inbox.migration('0002') is refused: " in failed.line
    assert "nowhere" in failed.line


def test_a_promoted_ledger_gets_the_users_tables_anew(
    tmp_path: Path, target: PostgresLedger
) -> None:
    """The tables stay in the file, so the record of their migrations must stay there too."""
    (tmp_path / "app.py").write_text(APP)
    run("migrate", "app:inbox", folder=tmp_path)
    promoted = run("promote", "ackbox.db", target.url, folder=tmp_path)
    assert promoted.code == 0
    assert "Your own tables were not transferred: orders." in promoted.err
    migrated = run("migrate", "app:inbox", folder=tmp_path, DATABASE_URL=target.url)
    assert migrated.out == "applied 0001_total\n"


def test_without_a_module_only_the_ledger_is_migrated(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    run("migrate", folder=tmp_path)
    assert read_ledger(tmp_path / "ackbox.db", "SELECT * FROM inbox_migrations") == []


def test_the_printed_schema_is_the_ledgers_own(tmp_path: Path) -> None:
    assert run("migrate", "app:inbox", "--sql", folder=tmp_path).code == 2


def test_doctor_lists_the_pending_migrations(tmp_path: Path, settings: dict[str, str]) -> None:
    def examine() -> tuple[int, dict[str, str]]:
        done = run("doctor", "app:inbox", "--json", folder=tmp_path, stdin=b"", **settings)
        findings = {finding["about"]: finding for finding in json.loads(done.out)["findings"]}
        return done.code, findings["migrations"]

    (tmp_path / "app.py").write_text(APP)
    run("migrate", "app:inbox", folder=tmp_path, stdin=b"", **settings)
    assert examine()[1]["verdict"] == "ok"
    (tmp_path / "app.py").write_text(APP + SECOND)
    code, finding = examine()
    assert (code, finding["verdict"]) == (0, "warn")
    assert "0002_first" in finding["detail"]
    assert "ackbox migrate app:inbox" in finding["remedy"]
    (tmp_path / "app.py").write_text(APP.replace("total INTEGER", "total TEXT"))
    code, finding = examine()
    assert (code, finding["verdict"]) == (1, "fail")
    assert "inbox.migration('0001_total') was applied with other SQL" in finding["detail"]
