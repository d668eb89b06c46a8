"""When the write-ahead log is copied back into the file, so that it stays small (F35).

Only the writer thread calls this. A checkpoint never waits for readers while the log is of ordinary
size; past the alarm size it waits for them a moment, so that the log can start over.
"""

from datetime import UTC, datetime
from time import monotonic

import apsw

from ackbox.errors import Unavailable
from ackbox.model import to_text
from ackbox.stores.sql import load_blocks
from ackbox.telemetry import Checkpointed, Observer

DUE_PAGES = 1000
ALARM_PAGES = 16_384  # 64 MiB of pages of 4 KiB
_PATIENCE_MILLISECONDS = 50
_BUSY_MILLISECONDS = 5000
_SERIOUS = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)


class Checkpoints:
    """Due after so many pages were written; SQLite counts them anyway, so a commit pays nothing."""

    def __init__(self, connection: apsw.Connection, observe: Observer) -> None:
        self._observe = observe
        self._written = _pages_written(connection)
        self._in_log = 0
        self._heartbeat = load_blocks("ackbox.stores.sqlite")["write_probe"]

    def run_if_due(self, connection: apsw.Connection) -> bool:
        """Returns whether the ledger file may have been written to."""
        written = _pages_written(connection)
        if 0 <= written - self._written < DUE_PAGES:  # below 0: SQLite's count began anew
            return False
        started = monotonic()
        self._written = written
        try:
            self._in_log, copied = self._run(connection)
        except _SERIOUS:
            raise
        except apsw.Error:  # no room to copy into, say: the log grows on until the next time
            copied = 0
        self._observe(Checkpointed(monotonic() - started, self._in_log, copied))
        return True

    def prove_writable(self, connection: apsw.Connection) -> None:
        """A real write, committed and synced, then the whole log copied and cut to nothing. Of one
        statement: the rollback of a failed transaction would fail too, and hide why."""
        connection.execute(self._heartbeat, {"now": to_text(datetime.now(UTC))})
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _run(self, connection: apsw.Connection) -> tuple[int, int]:
        if self._in_log < ALARM_PAGES:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        connection.set_busy_timeout(_PATIENCE_MILLISECONDS)
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.set_busy_timeout(_BUSY_MILLISECONDS)


def fold_log(connection: apsw.Connection, *, is_deleted: bool) -> None:
    """Copy the log into the ledger. Of a log that was deleted, nothing may be left out: nobody will
    read it again."""
    in_log, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    if is_deleted and copied < in_log:
        raise Unavailable(
            f"The log was deleted by another program, and {in_log - copied} of its {in_log} pages "
            "could not be copied into the ledger."
        )


def _pages_written(connection: apsw.Connection) -> int:
    return connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
