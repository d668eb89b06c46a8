"""Making a new ledger, and opening one that is there."""

import os
from pathlib import Path

import apsw

from ackbox.errors import LedgerCorrupt, StoreError
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.connections import (
    APPLICATION_ID,
    assert_ledger_file,
    assert_sqlite_version,
    assert_whole,
    open_writer,
    translate,
)


def open_ledger(path: Path, *, durability: str, vfs: str | None = None) -> apsw.Connection:
    """The writing connection on a whole ledger of the current schema; made if none is there.

    The caller holds the lock.
    """
    assert_sqlite_version(apsw.sqlite_lib_version())
    if not path.exists():
        create_ledger(path)
    assert_ledger_file(path)
    try:
        connection = open_writer(path, durability=durability, vfs=vfs)
        assert_whole(connection)
        migrations.apply(connection, migrations.all_migrations())
    except apsw.Error as error:
        raise translate(error, str(path)) from error
    return connection


def create_ledger(path: Path) -> None:
    """Built under another name and renamed when whole: it is there complete, or not at all."""
    for suffix in ("-wal", "-journal"):
        leftover = path.with_name(path.name + suffix)
        if leftover.exists():
            raise LedgerCorrupt(
                f"{leftover} is there but {path} is not: the ledger was moved or removed without "
                "it. Put both back side by side, or move the leftover away to start anew."
            )
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    try:
        draft.touch(mode=0o600)
        _build(draft)
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"Cannot create the ledger {path}: {error.strerror}.") from error


def _build(draft: Path) -> None:
    connection = apsw.Connection(str(draft))
    connection.pragma("auto_vacuum", "incremental")
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("journal_mode", "wal")
    migrations.apply(connection, migrations.all_migrations())
    connection.close()


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
