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

Seen = tuple[int, ...]  # device and inode; of the ledger also size and time of the last change


class Difference(Enum):
    """What happened to the files, as senders may read it."""

    MOVED = (
        "The ledger was moved or removed while this server runs, so nothing new is taken. Save "
        "what it still holds with `ackbox backup` into BACKUP_DIR, or put the file back."
    )
    TRUNCATED = "The ledger was truncated by another program while this server runs."
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

    def learn(self) -> None:
        """The lock is the one that is held, whatever bears its name now."""
        ledger, log, _ = self._look()
        self._known = ledger, log, self.lock.identity
        if ledger:
            self.lock.note_ledger(*ledger[:2])

    def learn_size(self) -> None:
        """After a checkpoint. What the files are stays as it was learnt when they were opened; the
        ledger is asked by its descriptor, because its name may stand for another file or none."""
        _, log, lock = self._known
        self._known = _seen(self.shared_locks.stat_ledger()), log, lock

    def assert_in_place(self) -> None:
        """Raise if another file has the name of the ledger: the log beside it is not its own."""
        if _identity(self._paths[0]) != self._known[0][:2]:
            raise Unavailable(Difference.MOVED.value, retry_after=5)

    def compare(self) -> Difference | None:
        """Return what differs from what was learnt; None if nothing does."""
        seen = self._look()
        return None if seen == self._known else _judge(self._known, seen)

    def _look(self) -> tuple[Seen, Seen, Seen]:
        ledger, log, lock = self._paths
        return _state(ledger), _identity(log), _identity(lock)


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
        found = os.stat(path)  # noqa: PTH116 - once for each commit, and a Path costs as much again
    except OSError:
        return ()
    return _seen(found)


def _seen(found: os.stat_result) -> Seen:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _identity(path: str) -> Seen:
    return _state(path)[:2]
