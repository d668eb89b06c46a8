"""Checkpoints: copy the write-ahead log into the ledger file, so that the log stays small (F35).

Only the writer thread runs them. While the log has an ordinary size, a checkpoint never waits for
readers. Past the alarm size a checkpoint waits a moment for readers, so that the log can restart.
"""

from datetime import UTC, datetime
from time import monotonic

import apsw

from ackbox.errors import Unavailable
from ackbox.model import to_text
from ackbox.stores.sqlite.limits import LIMITS, Limits
from ackbox.stores.sqlite.statements import blocks
from ackbox.telemetry import Checkpointed, Observer

_SERIOUS = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)


class Checkpoints:
    """Runs a checkpoint each time `checkpoint_pages` pages have been written. SQLite counts the
    pages anyway, so this costs a commit nothing."""

    def __init__(
        self, connection: apsw.Connection, observe: Observer, limits: Limits = LIMITS
    ) -> None:
        self._observe = observe
        self._limits = limits
        self._written = _pages_written(connection)
        self._in_log = 0
        self._write_probe = blocks()["write_probe"]

    def run_if_due(self, connection: apsw.Connection) -> bool:
        """Run a checkpoint if it is due. Return whether the ledger file may have been written
        to."""
        written = _pages_written(connection)
        if 0 <= written - self._written < self._limits.checkpoint_pages:  # below 0: SQLite reset it
            return False
        started = monotonic()
        self._written = written
        try:
            self._in_log, copied = self._run(connection)
        except _SERIOUS:
            raise
        except apsw.Error:  # such as a full disk: the log grows until the next checkpoint
            copied = 0
        self._observe(Checkpointed(monotonic() - started, self._in_log, copied))
        return True

    def prove_writable(self, connection: apsw.Connection) -> None:
        """Commit and sync a real write, then copy the whole log and truncate it. The write is a
        single statement without BEGIN: the rollback of a failed transaction would fail too, and
        hide the first error."""
        connection.execute(self._write_probe, {"now": to_text(datetime.now(UTC))})
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _run(self, connection: apsw.Connection) -> tuple[int, int]:
        if self._in_log < self._limits.alarm_pages:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        connection.set_busy_timeout(self._limits.reader_wait_milliseconds)
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.set_busy_timeout(self._limits.busy_milliseconds)


def copy_log(connection: apsw.Connection, *, is_deleted: bool) -> None:
    """Copy the log into the ledger. Raise if the log was deleted and not all of it was copied:
    nothing could read the rest again."""
    in_log, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    if is_deleted and copied < in_log:
        raise Unavailable(
            f"The log was deleted by another program, and {in_log - copied} of its {in_log} pages "
            "could not be copied into the ledger."
        )


def _pages_written(connection: apsw.Connection) -> int:
    return connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
