"""The files of an open ledger. Before anything is acknowledged, they are compared with the files
that were opened.

In WAL mode only a checkpoint writes to the ledger file itself, and only the writer thread runs
checkpoints. So the writer knows the size and modification time of the file, and reads them again
after each checkpoint.
"""

import os
from enum import Enum

import apsw

from ackbox.errors import Unavailable
from ackbox.stores.sqlite.connections import Connect
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.shared_locks import SharedLocks

_LOG_HEADER_BYTES = 32

FileState = tuple[int, ...]  # device and inode; for the ledger also size and modification time


class Difference(Enum):
    """A change to the files, with the message that senders get."""

    MOVED = (
        "The ledger was moved or removed while this server runs, so new events are refused. Save "
        "its events with `ackbox backup` into BACKUP_DIR, or move the file back."
    )
    LEDGER_TRUNCATED = "The ledger was truncated by another program while this server runs."
    LOG_TRUNCATED = "The log of the ledger was truncated by another program while this server runs."
    WRITTEN = "The ledger was changed by another program; it is checked and opened again."
    LOG_DELETED = (
        "The log of the ledger was deleted by another program; the ledger is opened again."
    )
    LOCK = "The lock file of the ledger was removed; it is created and locked again."


class LedgerFiles:
    """The files as they were when last opened or written by us. For the writer thread only."""

    def __init__(self, lock: LedgerLock) -> None:
        self.path = lock.ledger
        self.lock = lock
        self.shared_locks = SharedLocks(lock.ledger)
        self._paths = (
            str(lock.ledger),
            str(beside(lock.ledger, "-wal")),
            str(lock.path),
        )
        self._expected: tuple[FileState, FileState, FileState] = ((), (), ())
        self._log_size = self._log_size_at_begin = 0

    def note_opened(self) -> None:
        """Note the files that have the names of the ledger now. As the lock file, note the file
        that is locked, even if another file has its name now."""
        ledger, log, _ = self._read_states()
        self._expected = ledger, log[:2], self.lock.identity
        self._log_size = _size(log)
        if ledger:
            self.lock.note_ledger(*ledger[:2])

    def note_checkpoint(self) -> None:
        """Note the sizes after a checkpoint of our own. Stat the ledger by its descriptor, because
        another file, or none, may have its name now."""
        _, log, lock = self._expected
        self._expected = _as_state(self.shared_locks.stat_ledger()), log, lock
        self._log_size = _size(_state(self._paths[1]))

    def note_begin(self) -> None:
        """Note the size of the log. Call before a transaction writes to it: if another program cut
        the log, the next write makes it as long as before, with a hole in it."""
        self._log_size_at_begin = _size(_state(self._paths[1]))

    def assert_in_place(self) -> None:
        """Raise if another file now has the name of the ledger. The `-wal` file beside that name
        belongs to our ledger, not to the other file."""
        if _identity(self._paths[0]) != self._expected[0][:2]:
            raise Unavailable(Difference.MOVED.value, retry_after=5)

    def compare(self) -> Difference | None:
        """Return how the files differ from the noted files; None if they do not."""
        ledger, log, lock = self._read_states()
        seen = ledger, log[:2], lock[:2]
        if seen != self._expected:
            return _classify(self._expected, seen)
        if self._log_size_at_begin >= self._log_size:
            self._log_size = _size(log)
            return None
        return self._classify_short_log(_size(log))

    def _classify_short_log(self, size: int) -> Difference | None:
        """Decide why the log was shorter than we left it. Either a checkpoint of another program
        emptied the log, and our next commit wrote at its start. Or another program cut the log, and
        our commit wrote behind a hole."""
        if size == self._log_size_at_begin:
            return None  # nothing was written since: the next commit decides
        if size > self._log_size or not _has_header(self._paths[1]):
            return Difference.LOG_TRUNCATED
        self._log_size = size
        return None

    def _read_states(self) -> tuple[FileState, FileState, FileState]:
        ledger, log, lock = self._paths
        return _state(ledger), _state(log), _state(lock)


def open_files(connect: Connect, files: LedgerFiles) -> apsw.Connection:
    """Open the ledger, take the shared locks and note the files; undo all of it on failure."""
    connection = connect()
    try:
        files.shared_locks.take()
        files.note_opened()
    except BaseException:
        connection.close()
        files.shared_locks.close()
        raise
    return connection


def _classify(
    expected: tuple[FileState, FileState, FileState], seen: tuple[FileState, FileState, FileState]
) -> Difference:
    """Return the most serious difference."""
    if seen[0][:2] != expected[0][:2]:
        return Difference.MOVED
    if seen[0][2] < expected[0][2]:
        return Difference.LEDGER_TRUNCATED
    if seen[1] != expected[1]:
        return Difference.LOG_DELETED
    return Difference.WRITTEN if seen[0] != expected[0] else Difference.LOCK


def _state(path: str) -> FileState:
    try:
        # Do not follow a link: a ledger that was moved and linked to has its log elsewhere.
        status = os.lstat(path)
    except OSError:
        return ()
    return _as_state(status)


def _as_state(status: os.stat_result) -> FileState:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _identity(path: str) -> FileState:
    return _state(path)[:2]


def _has_header(log: str) -> bool:
    with open(log, "rb") as file:  # noqa: PTH123 - no lock is on this file, so its close drops none
        return any(file.read(_LOG_HEADER_BYTES))


def _size(state: FileState) -> int:
    return state[2] if state else 0
