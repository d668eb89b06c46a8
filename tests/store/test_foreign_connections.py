"""`sqlite3.connect` inside the process is refused on an open ledger, and works on any other
file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ackbox.errors import ForeignConnection
from support.ledgers.backends import OpenStore, open_sqlite


def linked(path: Path) -> Path:
    link = path.with_name("link")
    link.symlink_to(path)
    return link


SPELLINGS: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "bytes": bytes,
    "path": lambda path: path,
    "roundabout": lambda path: path.parent / ".." / path.parent.name / path.name,
    "link": linked,
    "uri": lambda path: f"file:{path}",
    "uri-with-host": lambda path: f"file://localhost{path}?mode=ro#top",
    "uri-without-host": lambda path: f"file://{path}?immutable=1",
    "uri-with-nul": lambda path: f"file:{path}%00x?mode=ro",
    "escaped-uri": lambda path: f"file:{path.parent}/%6ced%67er.db",
    "uri-in-bytes": lambda path: b"file:" + bytes(path),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_the_ledger_is_refused_however_it_is_spelled(
    open_it: OpenStore, path: Path, spelling: str
) -> None:  # N1, F53
    await open_it()
    database = SPELLINGS[spelling](path)
    with pytest.raises(ForeignConnection, match=r"ledger\.db is .*`await inbox\.read\(\.\.\.\)`"):
        sqlite3.connect(database, uri="uri" in spelling)


# N1, F53
async def test_a_relative_path_is_refused(
    open_it: OpenStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_it()
    monkeypatch.chdir(path.parent)
    for relative in ("ledger.db", "file:ledger.db"):
        with pytest.raises(ForeignConnection):
            sqlite3.connect(relative, uri=True)


# N1
async def test_other_files_can_be_opened(open_it: OpenStore, tmp_path: Path) -> None:
    await open_it()
    other = tmp_path / "other.db"
    for database in (":memory:", "", other, bytes(other), f"file:{other}", "file::memory:"):
        with closing(sqlite3.connect(database, uri=True)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("database", ["nul\0byte", b"NUL\0byte", "\ud800", 7, None])
async def test_an_argument_that_is_not_a_path_is_left_to_sqlite3(
    open_it: OpenStore, tmp_path: Path, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError)) as before:
        sqlite3.connect(database)
    await open_it()
    with pytest.raises(before.type):
        sqlite3.connect(database)


# N1
async def test_a_closed_ledger_may_be_opened_again(path: Path, tmp_path: Path) -> None:
    first, other = await open_sqlite(path), await open_sqlite(tmp_path / "other.db")
    await first.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    with pytest.raises(ForeignConnection):
        sqlite3.connect(tmp_path / "other.db")
    await other.close()
