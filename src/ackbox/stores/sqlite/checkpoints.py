"""When the write-ahead log is copied back into the file, so that it stays small (F35).

Only the writer thread calls this. A checkpoint never waits for readers while the log is of ordinary
size; past the alarm size it waits for them a moment, so that the log can start over.
"""

from datetime import UTC, datetime
from time import monotonic

import apsw

from ackbox.model import to_text
from ackbox.stores.sql import load_blocks
from ackbox.telemetry import Checkpointed, Observer

DUE_PAGES = 4000
ALARM_PAGES = 16_384  # 64 MiB of pages of 4 KiB
_PATIENCE_MILLISECONDS = 50
_BUSY_MILLISECONDS = 5000


class Checkpoints:
    def __init__(self, connection: apsw.Connection, observe: Observer) -> None:
        self._observe = observe
        self._pages = 0
        self._due_at = DUE_PAGES
        self._heartbeat = load_blocks("ackbox.stores.sqlite")["heartbeat"]
        connection.set_wal_hook(self._note_size)

    def run_if_due(self, connection: apsw.Connection) -> None:
        if self._pages < self._due_at:
            return
        started = monotonic()
        in_log, copied = self._run(connection)
        self._due_at = in_log + DUE_PAGES  # unless the log starts over first
        self._observe(Checkpointed(monotonic() - started, in_log, copied))

    def prove_writable(self, connection: apsw.Connection) -> None:
        """A real write, committed and synced, then the whole log copied and cut to nothing."""
        with connection:
            connection.execute(self._heartbeat, {"now": to_text(datetime.now(UTC))})
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _run(self, connection: apsw.Connection) -> tuple[int, int]:
        if self._pages < ALARM_PAGES:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        connection.set_busy_timeout(_PATIENCE_MILLISECONDS)
        try:
            return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            return self._pages, 0
        finally:
            connection.set_busy_timeout(_BUSY_MILLISECONDS)

    def _note_size(self, connection: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._pages:
            self._due_at = DUE_PAGES
        self._pages = pages
        return apsw.SQLITE_OK
