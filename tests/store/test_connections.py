"""Checks before a connection is used (L12, W12)."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.errors import StoreError
from ackbox.stores.sqlite import connections
from ackbox.stores.sqlite.connections import (
    assert_sqlite_version,
    has_wal_reset_bug,
    open_reader,
    open_writer,
)
from ackbox.stores.sqlite.files import create_ledger
from support.faults.faulty_vfs import FaultyVfs

EXPECTED = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "busy_timeout": 5000,
    "auto_vacuum": 2,
    "trusted_schema": 0,
    "wal_autocheckpoint": 0,
    "locking_mode": "normal",
    "page_size": 4096,
}


@pytest.fixture
def ledger(path: Path) -> Path:
    create_ledger(path)
    return path


def test_the_writer_has_the_pragmas_it_promises(ledger: Path) -> None:  # W12
    with closing(open_writer(ledger, durability="full")) as connection:
        assert {name: connection.pragma(name) for name in EXPECTED} == EXPECTED


def test_normal_durability_is_a_named_choice(ledger: Path) -> None:
    with closing(open_writer(ledger, durability="normal")) as connection:
        assert connection.pragma("synchronous") == 1


@pytest.mark.parametrize("name", ["journal_mode", "synchronous", "foreign_keys"])
def test_a_pragma_that_does_not_take_is_refused(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:  # W12
    def set_all_but_one(connection: apsw.Connection, *given: Any) -> None:
        set_pragmas(connection, *given)
        connection.pragma(name, {"journal_mode": "delete"}.get(name, 0))

    set_pragmas = connections._set_pragmas
    monkeypatch.setattr(connections, "_set_pragmas", set_all_but_one)
    with pytest.raises(StoreError, match=name):
        open_writer(ledger, durability="full")


def test_a_reader_cannot_write(ledger: Path) -> None:  # L13
    with closing(open_reader(ledger)) as connection, pytest.raises(apsw.ReadOnlyError):
        connection.execute("DELETE FROM events")


def test_opening_never_creates_a_file(path: Path) -> None:  # F16
    for open_it in (open_reader, lambda path: open_writer(path, durability="full")):
        with pytest.raises(apsw.CantOpenError):
            open_it(path)
    assert list(path.parent.iterdir()) == []


def test_full_durability_syncs_the_log_at_every_commit_and_normal_does_not(
    ledger: Path, vfs: FaultyVfs
) -> None:  # promise 1
    syncs = {}
    for durability in ("full", "normal"):
        connection = open_writer(ledger, durability=durability, vfs=vfs.name)
        connection.execute("CREATE TABLE IF NOT EXISTS probe (n); INSERT INTO probe VALUES (0)")
        before = vfs.calls["sync", "wal"]
        for _ in range(10):
            connection.execute("INSERT INTO probe VALUES (1)")
        syncs[durability] = vfs.calls["sync", "wal"] - before
        connection.close()
    assert syncs == {"full": 10, "normal": 0}


VERSIONS = {  # the WAL-reset bug: fixed in 3.51.3, 3.50.7 and 3.44.6; 3.52.0 was withdrawn
    "3.7.0": True,
    "3.43.2": True,
    "3.44.5": True,
    "3.44.6": False,
    "3.44.7": False,
    "3.45.0": True,
    "3.49.1": True,
    "3.50.6": True,
    "3.50.7": False,
    "3.51.0": True,
    "3.51.2": True,
    "3.51.3": False,
    "3.52.0": True,
    "3.52.1": False,
    "3.53.0": False,
    "3.100.0": False,
    "4.0.0": False,
}


@pytest.mark.parametrize(("version", "bad"), VERSIONS.items())
def test_a_sqlite_that_can_corrupt_its_log_is_known(version: str, bad: bool) -> None:
    assert has_wal_reset_bug(version) is bad


def test_a_bad_sqlite_is_refused_with_a_remedy() -> None:
    with pytest.raises(StoreError, match=r"3\.50\.6.*pip install --upgrade apsw"):
        assert_sqlite_version("3.50.6")


def test_the_sqlite_we_run_on_has_no_known_bug() -> None:
    assert_sqlite_version(apsw.sqlite_lib_version())
