"""Create a new ledger, or open an existing one."""

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
    assert_undamaged,
    is_restored,
    open_without_trace,
    open_writer,
    translate,
)
from ackbox.stores.sqlite.limits import LIMITS, Limits
from ackbox.stores.sqlite.lock import LedgerLock, lock_path
from ackbox.telemetry import LedgerRestored, Observer, ignore_facts


def open_ledger(
    path: Path,
    durability: str,
    vfs: str | None = None,
    *,
    observe: Observer = ignore_facts,
    limits: Limits = LIMITS,
) -> apsw.Connection:
    """Return the writing connection to a checked and migrated ledger. Create the ledger if there is
    none.

    The caller holds the lock.
    """
    assert_sqlite_version(apsw.sqlite_lib_version())
    try:
        if not path.exists():
            create_ledger(path)
        assert_ledger_file(path)
        _assert_one_name(path)
        _assert_usable(path, vfs, limits.check_seconds)
        if mark_restored(path):
            observe(LedgerRestored(str(path)))
        return _open_migrated(path, durability, vfs, limits)
    except apsw.Error as error:
        raise translate(error, str(path)) from error
    except OSError as error:
        raise StoreError(f"Cannot open the ledger {path}: {error.strerror}.") from error


def lock_ledger(path: Path) -> LedgerLock:
    """Take the lock. Create no lock file beside a file that is not a ledger. If a lock file is
    there, the file was a ledger before, and `open_ledger` checks it."""
    try:
        if path.exists() and not lock_path(path).exists():
            assert_ledger_file(path)
    except apsw.Error as error:
        raise translate(error, str(path)) from error
    except OSError as error:
        raise StoreError(f"Cannot open the ledger {path}: {error.strerror}.") from error
    return LedgerLock(path)


def mark_restored(path: Path) -> bool:
    """Set the application_id of a ledger that was restored from SQL text. Return whether it was
    such a ledger. The caller holds the lock."""
    restored = is_restored(path)
    if restored:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.pragma("application_id", APPLICATION_ID)
    return restored


def _assert_one_name(path: Path) -> None:
    """Raise if the file has hard links: each name has a lock and a log of its own, so two names
    could have two writers."""
    if (names := path.stat().st_nlink) > 1:
        raise StoreError(
            f"The ledger {path} has {names} names (hard links): a server under each name would "
            "write over the other's events. Keep one name; `ackbox backup` makes a copy."
        )


def create_ledger(path: Path) -> None:
    """Create a ledger under another name, and rename it when it is complete."""
    for suffix in ("-wal", "-journal"):
        leftover = path.with_name(path.name + suffix)
        if leftover.exists():
            raise LedgerCorrupt(
                f"{leftover} exists but {path} does not: the ledger was moved or removed without "
                "it. Put both files side by side again, or move this one away to start empty."
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


def _assert_usable(path: Path, vfs: str | None, check_seconds: float) -> None:
    """Raise before anything is changed if the ledger is damaged or has an unknown schema."""
    with closing(open_without_trace(path, vfs=vfs)) as connection:
        assert_undamaged(connection, seconds=check_seconds)
        migrations.pending(connection, migrations.all_migrations())


def _open_migrated(path: Path, durability: str, vfs: str | None, limits: Limits) -> apsw.Connection:
    connection = open_writer(path, durability=durability, vfs=vfs, limits=limits)
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
