"""The files of an open ledger, compared with what was opened before anything is acknowledged.

In WAL mode only a checkpoint writes to the ledger file itself, and only the writer thread makes
one. So the writer knows size and time of the file, and learns them anew after each checkpoint.
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

Seen = tuple[int, ...]  # device and inode; of the ledger also size and time of the last change


class Difference(Enum):
    """What happened to the files, as senders may read it."""

    MOVED = (
        "The ledger was moved or removed while this server runs, so nothing new is taken. Save "
        "what it still holds with `ackbox backup` into BACKUP_DIR, or put the file back."
    )
    TRUNCATED = "The ledger was truncated by another program while this server runs."
    CUT = "The log of the ledger was truncated by another program while this server runs."
    WRITTEN = "The ledger was changed by another program; it is checked and opened again."
    LOG = "The log of the ledger was deleted by another program; the ledger is opened again."
    LOCK = "The lock file of the ledger was removed; it is made and locked again."


class LedgerFiles:
    """Used on the writer thread only. `learn` after each open and each checkpoint of our own."""

    def __init__(self, lock: LedgerLock) -> None:
        self.path = lock.ledger
        self.lock = lock
        self.shared_locks = SharedLocks(lock.ledger)
        self._paths = (
            str(lock.ledger),
            str(beside(lock.ledger, "-wal")),
            str(lock.path),
        )
        self._known: tuple[Seen, Seen, Seen] = ((), (), ())
        self._log_size = self._log_size_at_begin = 0

    def learn(self) -> None:
        """The lock is the one that is held, whatever bears its name now."""
        ledger, log, _ = self._look()
        self._known = ledger, log[:2], self.lock.identity
        self._log_size = _size(log)
        if ledger:
            self.lock.note_ledger(*ledger[:2])

    def learn_size(self) -> None:
        """After a checkpoint. What the files are stays as it was learnt when they were opened; the
        ledger is asked by its descriptor, because its name may stand for another file or none."""
        _, log, lock = self._known
        self._known = _seen(self.shared_locks.stat_ledger()), log, lock
        self._log_size = _size(_state(self._paths[1]))

    def note_begin(self) -> None:
        """Call before a transaction writes to the log: afterwards, a log that was cut is as long as
        ever, with a hole in it."""
        self._log_size_at_begin = _size(_state(self._paths[1]))

    def assert_in_place(self) -> None:
        """Raise if another file has the name of the ledger: the log beside it is not its own."""
        if _identity(self._paths[0]) != self._known[0][:2]:
            raise Unavailable(Difference.MOVED.value, retry_after=5)

    def compare(self) -> Difference | None:
        """Return what differs from what was learnt; None if nothing does."""
        ledger, log, lock = self._look()
        seen = ledger, log[:2], lock[:2]
        if seen != self._known:
            return _judge(self._known, seen)
        if self._log_size_at_begin >= self._log_size:
            self._log_size = _size(log)
            return None
        return self._judge_short_log(_size(log))

    def _judge_short_log(self, size: int) -> Difference | None:
        """The log was shorter than we left it. Either another program's checkpoint emptied it, and
        the next commit began it anew; or it was cut, and the commit wrote behind a hole."""
        if size == self._log_size_at_begin:
            return None  # nothing was written since: the next commit tells
        if size > self._log_size or not _has_header(self._paths[1]):
            return Difference.CUT
        self._log_size = size
        return None

    def _look(self) -> tuple[Seen, Seen, Seen]:
        ledger, log, lock = self._paths
        return _state(ledger), _state(log), _state(lock)


def open_files(connect: Connect, files: LedgerFiles) -> apsw.Connection:
    """Open, lock and learn; all of it or nothing."""
    connection = connect()
    try:
        files.shared_locks.take()
        files.learn()
    except BaseException:
        connection.close()
        files.shared_locks.close()
        raise
    return connection


def _judge(known: tuple[Seen, Seen, Seen], seen: tuple[Seen, Seen, Seen]) -> Difference:
    """Name the worst difference."""
    if seen[0][:2] != known[0][:2]:
        return Difference.MOVED
    if seen[0][2] < known[0][2]:
        return Difference.TRUNCATED
    if seen[1] != known[1]:
        return Difference.LOG
    return Difference.WRITTEN if seen[0] != known[0] else Difference.LOCK


def _state(path: str) -> Seen:
    try:
        # Not through a link: a ledger that was moved and linked to has its log elsewhere.
        found = os.lstat(path)
    except OSError:
        return ()
    return _seen(found)


def _seen(found: os.stat_result) -> Seen:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _identity(path: str) -> Seen:
    return _state(path)[:2]


def _has_header(log: str) -> bool:
    with open(log, "rb") as file:  # noqa: PTH123 - no lock is on this file, so closing drops none
        return any(file.read(_LOG_HEADER_BYTES))


def _size(seen: Seen) -> int:
    return seen[2] if seen else 0
