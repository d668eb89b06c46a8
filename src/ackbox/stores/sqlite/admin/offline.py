"""Commands on a ledger without its server: inspect, migrate, copy."""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from ackbox.errors import AckboxError, SchemaMismatch, StoreError
from ackbox.model import BackupProgress
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.admin.backup import Backup
from ackbox.stores.sqlite.connections import (
    APPLICATION_ID,
    assert_ledger_file,
    open_reader,
    open_without_trace,
    open_writer,
    translate,
)
from ackbox.stores.sqlite.files import lock_ledger, mark_restored, open_ledger
from ackbox.stores.sqlite.ledger_files import LedgerFiles, open_files
from ackbox.stores.sqlite.lock import LedgerLock, assert_same_file, find_holder
from ackbox.stores.sqlite.migrations import Migration
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.telemetry import ignore_facts


def schema_sql() -> str:
    """Return the SQL that creates an empty ledger in a new file."""
    pragmas = (
        "PRAGMA auto_vacuum = incremental;",
        f"PRAGMA application_id = {APPLICATION_ID};",
        "PRAGMA journal_mode = wal;",
    )
    return "\n".join([*pragmas, "", migrations.as_sql(migrations.all_migrations())])


def pending_migrations(path: Path) -> list[Migration]:
    with open_for_inspection(path) as connection:
        return migrations.pending(connection, migrations.all_migrations())


def assert_readable(path: Path) -> None:
    """Raise unless this release and this user can read the ledger. Raise too if a server runs on
    the ledger and has another file open."""
    assert_same_file(path)
    if missing := pending_migrations(path):
        raise SchemaMismatch(
            f"The ledger {path} lacks migration {missing[0].version:04} {missing[0].name}: it was "
            "written by an older ackbox. Stop its server and run `ackbox migrate`."
        )
    index = path.with_name(path.name + "-shm")
    if not index.exists() and not os.access(path.absolute().parent, os.W_OK):
        raise StoreError(
            f"{path} cannot be read where it is: SQLite keeps a file beside it, and this user may "
            "not write to the folder. Run as its owner, or read a copy."
        )


def migrate(path: Path, *, durability: str) -> list[Migration]:
    """Create or migrate the ledger. Return the applied migrations. No server may have it open."""
    lock = lock_ledger(path)
    try:
        missing = pending_migrations(path) if path.exists() else migrations.all_migrations()
        open_ledger(path, durability).close()
    finally:
        lock.release()
    return missing


async def copy_ledger(
    path: Path, target: Path, *, durability: str
) -> AsyncGenerator[BackupProgress, None]:
    """Copy a ledger that no server has open. Do not migrate it: users copy before they migrate."""
    lock = lock_ledger(path)
    try:
        writer = _start_writer(path, lock, durability)
        steps = aiter(Backup(writer, path, target))
        try:
            async for progress in steps:
                yield progress
        finally:
            await steps.aclose()
            await writer.stop()
    finally:
        lock.release()


@contextmanager
def open_for_inspection(path: Path) -> Iterator[apsw.Connection]:
    """Yield a read-only connection. Raise `StoreError` unless the file is a ledger."""
    try:
        _assert_exists(path)
        is_open = find_holder(path) is not None
        connection = open_reader(path) if is_open else open_without_trace(path)
        try:
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, str(path)) from error


def _start_writer(path: Path, lock: LedgerLock, durability: str) -> Writer:
    with open_for_inspection(path):
        pass
    mark_restored(path)

    def connect() -> apsw.Connection:
        return open_writer(path, durability=durability)

    def ignore(error: AckboxError) -> None:
        """Do nothing: the error reaches the caller that waits for the failed step."""

    files = LedgerFiles(lock)
    connection = open_files(connect, files)
    return Writer(connection, connect, files, observe=ignore_facts, on_fatal=ignore)


def _assert_exists(path: Path) -> None:
    try:
        if not path.exists():
            raise StoreError(
                f"There is no ledger at {path}: `ackbox serve` creates one when it first starts. "
                "If yours is elsewhere, set ACKBOX_DB_PATH."
            )
        assert_ledger_file(path)
    except OSError as error:
        raise StoreError(f"Cannot read the ledger {path}: {error.strerror}.") from error
