"""A copy of a ledger that a server holds, made by another process (S1).

The copy reads one snapshot, so no commit of the server makes it start over. While it reads, the
server's log cannot restart: the copy gives up before the log has grown by much.
"""

from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import apsw

from ackbox.errors import StoreError
from ackbox.model import BackupProgress
from ackbox.stores.sqlite.admin.backup import Backup
from ackbox.stores.sqlite.admin.offline import open_for_inspection
from ackbox.stores.sqlite.connections import open_reader, translate
from ackbox.stores.sqlite.lock import assert_same_file
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.write.jobs import Operation

T = TypeVar("T")

LOG_GROWTH_BYTES = 256 * 1024 * 1024


async def copy_beside_server(
    path: Path, target: Path, *, max_log_growth: int = LOG_GROWTH_BYTES
) -> AsyncGenerator[BackupProgress, None]:
    """Copy the ledger as it is now. Raise `StoreError` if its log grows by more than the limit, or
    if the file at this path is not the file that the server has open."""
    assert_same_file(path)
    with open_for_inspection(path):
        pass  # only check that it is a ledger
    try:
        with closing(open_reader(path)) as connection:
            steps = aiter(Backup(_Snapshot(connection, path, max_log_growth), path, target))
            try:
                async for progress in steps:
                    yield progress
            finally:
                await steps.aclose()
    except apsw.Error as error:
        raise translate(error, str(path)) from error


class _Snapshot:
    """A read transaction that stays open: every step sees the same ledger."""

    def __init__(self, connection: apsw.Connection, path: Path, max_log_growth: int) -> None:
        self._connection = connection
        self._log = beside(path, "-wal")
        self._limit = self._log_bytes() + max_log_growth
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_schema").fetchall()  # fixes the snapshot

    async def submit(self, operation: Operation[T], *, outside_transaction: bool = False) -> T:
        if self._log_bytes() > self._limit and outside_transaction:
            self._limit = 1 << 62  # the clean-up may still run
            raise StoreError(
                "The copy was stopped: the server wrote so much meanwhile that its log grew too "
                "large. Copy at a quieter time, or set ACKBOX_BACKUP_DIR for the server and name a "
                "file there: then the server makes the copy, and has no such limit."
            )
        return operation(self._connection)

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0
