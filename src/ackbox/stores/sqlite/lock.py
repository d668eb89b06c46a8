"""The lock that allows one process to write: an OS lock on `DB_PATH.lock`.

The kernel frees it however the process ends.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import sleep

import msgspec
from msgspec import Struct

from ackbox.documentation import name_page
from ackbox.errors import LedgerInUse, StoreError
from ackbox.stores.sqlite.names import resolve, resolve_ledger

_TRIES = 3
_SECONDS_BETWEEN_TRIES = 0.01


class Holder(Struct, frozen=True):
    """The process that holds the lock, as the lock file describes it."""

    pid: int
    url: str | None = None
    workers: int | None = None
    ledger: tuple[int, int] | None = None  # device and inode of the file that the holder opened


class LedgerLock:
    """Held from construction until `release`. `ledger` is the file itself, not a link to it."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = resolve_ledger(ledger)
        self.path = lock_path(self.ledger)
        self._holder = Holder(os.getpid())
        self._ledger_file: tuple[int, int] | None = None
        self._changing = Lock()  # the loop calls `describe`, the writer `take_again`
        self._fd: int | None = self._take()
        self.describe(None)

    def note_ledger(self, device: int, inode: int) -> None:
        """Write into the lock file which file was opened as the ledger."""
        with self._changing:
            known, self._ledger_file = self._ledger_file, (device, inode)
            url, workers = self._holder.url, self._holder.workers
        if known != (device, inode):
            self.describe(url, workers)

    @property
    def identity(self) -> tuple[int, ...]:
        """Return device and inode of the file that is locked."""
        if self._fd is None:
            return ()
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def describe(self, url: str | None, workers: int | None = None) -> None:
        """Write the process id, its URL and its number of workers into the lock file."""
        with self._changing:
            self._holder = Holder(os.getpid(), url, workers, self._ledger_file)
            if self._fd is not None:
                _write_holder(self._fd, msgspec.json.encode(self._holder))

    def take_again(self) -> None:
        """If the lock file was removed or replaced, lock the file that has its name now. Raise
        `LedgerInUse` if another process locked it first."""
        with self._changing:
            if self._fd is None or _is_at(self._fd, self.path):
                return
            previous, self._fd = self._fd, self._take()
            os.close(previous)
        self.describe(self._holder.url, self._holder.workers)

    def _take(self) -> int:
        try:
            return _open_and_lock(self.path)
        except BlockingIOError:
            raise LedgerInUse(_in_use(self.ledger, read_holder(self.ledger))) from None
        except OSError as error:
            raise StoreError(_cannot_lock(self.path, error)) from error

    def release(self) -> None:
        """Release the lock. Do not delete the file: another process may have locked it already, and
        a third process would then create and lock a new file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None  # the number may soon belong to another file
            _write_holder(fd, b"")
            os.close(fd)


def lock_path(ledger: Path) -> Path:
    """Return the lock path beside the file itself, so that a link to the file has the same lock."""
    file = resolve(ledger)
    return file.with_name(file.name + ".lock")


def find_holder(ledger: Path) -> Holder | None:
    """Return the current holder of the lock; None if the lock is free, even if its file names a
    process."""
    try:
        fd = os.open(lock_path(ledger), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return read_holder(ledger)
    finally:
        os.close(fd)
    return None


def assert_same_file(ledger: Path) -> None:
    """Raise `StoreError` if a process serves a ledger that this path no longer names."""
    holder = find_holder(ledger)
    if holder is not None and has_lost_its_name(ledger, holder):
        raise StoreError(
            f"Process {holder.pid} serves a ledger that {ledger} no longer names: it was moved, "
            "deleted or replaced. Its events are not at this path, so nothing was read. Do not "
            "stop the process. Put the file back with `mv`, or run `ackbox backup FILE` with FILE "
            "in the BACKUP_DIR of the server: then the server copies. For the steps, see "
            f"{name_page('how-to/recover')}."
        )


def has_lost_its_name(ledger: Path, holder: Holder) -> bool:
    """Return whether the file that the holder opened was moved, deleted or replaced since. If so,
    the file at this path, if there is one, does not have the events of the holder."""
    if holder.ledger is None:
        return False
    try:
        status = ledger.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (status.st_dev, status.st_ino) != holder.ledger


def read_holder(ledger: Path) -> Holder | None:
    """Return the holder that the lock file names; None if it names no process."""
    try:
        return msgspec.json.decode(lock_path(ledger).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _open_and_lock(path: Path) -> int:
    """Open and lock the file. Repeat if the file was removed or replaced before it was locked:
    other processes would lock the new file."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(fd)
        except OSError:
            os.close(fd)
            raise
        if _is_at(fd, path):
            return fd
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _lock(fd: int) -> None:
    """Lock the file. Try several times: `find_holder` of another process has a shared lock for an
    instant."""
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                raise
            sleep(_SECONDS_BETWEEN_TRIES)
        else:
            return


def _write_holder(fd: int, text: bytes) -> None:
    """Write the description of the holder. The lock holds without it, so a full disk does not
    prevent a start (F9)."""
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)


def _in_use(ledger: Path, holder: Holder | None) -> str:
    who = "another process" if holder is None else f"process {holder.pid}"
    where = f" at {holder.url}" if holder and holder.url else ""
    return (
        f"The ledger {ledger} is in use by {who}{where}: one SQLite file has one server. "
        "Stop that process, or set another ACKBOX_DB_PATH."
    )


def _cannot_lock(path: Path, error: OSError) -> str:
    return (
        f"Cannot open {path}: {error.strerror}. Its folder must exist and be writable by the "
        "user that runs ackbox."
    )
