"""Making a new ledger, and opening one that is there."""

import os
from contextlib import closing
from pathlib import Path

import apsw

from ackbox.errors import LedgerCorrupt, StoreError
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.connections import (
    APPLICATION_ID,
    assert_ledger_file,
    assert_sqlite_version,
    assert_whole,
    is_restored,
    open_without_trace,
    open_writer,
    translate,
)
from ackbox.stores.sqlite.lock import LedgerLock, lock_path
from ackbox.telemetry import LedgerRestored, Observer, to_nobody


def open_ledger(
    path: Path,
    durability: str,
    vfs: str | None = None,
    *,
    observe: Observer = to_nobody,
) -> apsw.Connection:
    """The writing connection on a whole ledger of the current schema; made if none is there.

    The caller holds the lock.
    """
    assert_sqlite_version(apsw.sqlite_lib_version())
    try:
        if not path.exists():
            create_ledger(path)
        assert_ledger_file(path)
        _assert_one_name(path)
        _look_over(path, vfs)
        if mark_restored(path):
            observe(LedgerRestored(str(path)))
        return _open_migrated(path, durability, vfs)
    except apsw.Error as error:
        raise translate(error, str(path)) from error
    except OSError as error:
        raise StoreError(f"Cannot open the ledger {path}: {error.strerror}.") from error


def lock_ledger(path: Path) -> LedgerLock:
    """Take the lock. Nothing is made beside a file that is not a ledger: a lock file that is there
    tells that one was."""
    try:
        if path.exists() and not lock_path(path).exists():
            assert_ledger_file(path)
    except apsw.Error as error:
        raise translate(error, str(path)) from error
    except OSError as error:
        raise StoreError(f"Cannot open the ledger {path}: {error.strerror}.") from error
    return LedgerLock(path)


def mark_restored(path: Path) -> bool:
    """Give a ledger that was restored from SQL text its application_id back; returns whether it was
    one. The caller holds the lock."""
    restored = is_restored(path)
    if restored:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.pragma("application_id", APPLICATION_ID)
    return restored


def _assert_one_name(path: Path) -> None:
    """Each name of a file has a lock and a log of its own: under two, it would have two writers."""
    if (names := path.stat().st_nlink) > 1:
        raise StoreError(
            f"The ledger {path} has {names} names (hard links): a server under each would write "
            "over the other's events. Keep one name; `ackbox backup` makes a copy."
        )


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
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _look_over(path: Path, vfs: str | None) -> None:
    """Before anything may change: whole, and of a schema that this release knows."""
    with closing(open_without_trace(path, vfs=vfs)) as connection:
        assert_whole(connection)
        migrations.pending(connection, migrations.all_migrations())


def _open_migrated(path: Path, durability: str, vfs: str | None) -> apsw.Connection:
    connection = open_writer(path, durability=durability, vfs=vfs)
    try:
        migrations.apply(connection, migrations.all_migrations())
    except BaseException:
        connection.close()
        raise
    return connection


def _build(draft: Path) -> None:
    with closing(apsw.Connection(str(draft))) as connection:
        connection.pragma("auto_vacuum", "incremental")
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("journal_mode", "wal")
        migrations.apply(connection, migrations.all_migrations())


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
