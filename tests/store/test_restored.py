"""A ledger that comes from `.dump`, and files that are not ledgers."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ackbox.errors import AckboxError, StoreError
from ackbox.model import ReceiptKind
from ackbox.stores.sqlite.admin.offline import assert_readable
from ackbox.telemetry import LedgerRestored
from support.ledgers.backends import OpenStore, open_sqlite
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts


async def dump_of_a_ledger(path: Path) -> str:
    store = await open_sqlite(path)
    await store.apply_tables(["CREATE TABLE access (customer TEXT PRIMARY KEY)"])
    await record_in(store, envelopes(20))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


async def test_a_restored_dump_is_accepted_with_a_warning(
    open_it: OpenStore, path: Path, tmp_path: Path, facts: Facts
) -> None:  # C8
    dump = await dump_of_a_ledger(tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump)
    assert_readable(path)
    assert not facts.of(LedgerRestored)
    store = await open_it()
    assert facts.of(LedgerRestored) == [LedgerRestored(str(path))]
    assert (await record_in(store, [envelope("key-7", b"other")]))[0].kind is not ReceiptKind.NEW
    assert (await record_in(store, [envelope("new")]))[0].kind is ReceiptKind.NEW
    await store.close()
    store = await open_it()
    assert len(facts.of(LedgerRestored)) == 1


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX {index}",
        "ALTER TABLE events ADD COLUMN theirs TEXT",
        "CREATE TRIGGER theirs AFTER INSERT ON events BEGIN SELECT 1; END",
        "DELETE FROM schema_migrations",
        "UPDATE schema_migrations SET checksum = 'other'",
        "PRAGMA application_id = 7",
    ],
)
async def test_a_dump_that_differs_is_refused_and_left_alone(
    path: Path, tmp_path: Path, change: str
) -> None:  # C8
    dump = await dump_of_a_ledger(tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump)
        index = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        (name,) = connection.execute(index).fetchone()
        connection.executescript(change.format(index=name))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a ledger of ackbox"):
        await open_sqlite(path)
    assert path.read_bytes() == before


def text(path: Path) -> None:
    path.write_text("root:x:0:0\n" * 100)


def nothing(path: Path) -> None:
    path.touch()


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id)")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [text, nothing, database, folder])
async def test_a_refused_start_leaves_nothing_beside_a_foreign_file(
    path: Path, make: Callable[[Path], None]
) -> None:  # N22
    make(path)
    with pytest.raises(AckboxError):
        await open_sqlite(path)
    assert list(path.parent.iterdir()) == [path]
