"""Who may write: the holder of an OS lock on `DB_PATH.lock`, freed by the kernel at any death."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import sleep

import msgspec
from msgspec import Struct

from ackbox.errors import LedgerInUse, StoreError
from ackbox.stores.sqlite.names import resolve, resolve_ledger

_TRIES = 3
_SECONDS_BETWEEN_TRIES = 0.01


class Holder(Struct, frozen=True):
    """What the lock file says of the process that holds it."""

    pid: int
    url: str | None = None
    workers: int | None = None
    ledger: tuple[int, int] | None = None  # device and inode of the file that it opened


class LedgerLock:
    """Held from construction until `release`. `ledger` is the file itself, not a link to it."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = resolve_ledger(ledger)
        self.path = lock_path(self.ledger)
        self._holder = Holder(os.getpid())
        self._ledger_file: tuple[int, int] | None = None
        self._changing = Lock()  # the loop describes, the writer takes again
        self._fd: int | None = self._take()
        self.describe(None)

    def note_ledger(self, device: int, inode: int) -> None:
        """Tell other processes which file was opened as the ledger."""
        with self._changing:
            known, self._ledger_file = self._ledger_file, (device, inode)
            url, workers = self._holder.url, self._holder.workers
        if known != (device, inode):
            self.describe(url, workers)

    @property
    def identity(self) -> tuple[int, ...]:
        """Device and inode of the file that is locked."""
        if self._fd is None:
            return ()
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def describe(self, url: str | None, workers: int | None = None) -> None:
        """Tell others who holds it, where it answers, and how many workers it runs."""
        with self._changing:
            self._holder = Holder(os.getpid(), url, workers, self._ledger_file)
            if self._fd is not None:
                _note(self._fd, msgspec.json.encode(self._holder))

    def take_again(self) -> None:
        """If the lock file was removed or replaced, lock the one that has its name now; raise
        `LedgerInUse` if another process was faster."""
        with self._changing:
            if self._fd is None or _is_at(self._fd, self.path):
                return
            before, self._fd = self._fd, self._take()
            os.close(before)
        self.describe(self._holder.url, self._holder.workers)

    def _take(self) -> int:
        try:
            return _open_and_take(self.path)
        except BlockingIOError:
            raise LedgerInUse(_in_use(self.ledger, read_holder(self.ledger))) from None
        except OSError as error:
            raise StoreError(_cannot_lock(self.path, error)) from error

    def release(self) -> None:
        """The file stays: removing it could take away a lock that another has just taken."""
        if self._fd is not None:
            fd, self._fd = self._fd, None  # its number may soon stand for another file
            _note(fd, b"")
            os.close(fd)


def lock_path(ledger: Path) -> Path:
    """Beside the file itself: a link to it must not lead to another lock."""
    file = resolve(ledger)
    return file.with_name(file.name + ".lock")


def find_holder(ledger: Path) -> Holder | None:
    """Who holds the lock now; None if nobody does, whatever its file still says."""
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


def assert_served(ledger: Path) -> None:
    """Raise `StoreError` if a process serves this ledger from a file that lost its name."""
    holder = find_holder(ledger)
    if holder is not None and has_lost_its_name(ledger, holder):
        raise StoreError(
            f"Process {holder.pid} serves a ledger that {ledger} no longer names: it was moved, "
            "deleted or replaced. Its events are not at this path, so nothing was read. Do not "
            "stop the process. Put the file back with `mv`, or run `ackbox backup FILE` with FILE "
            'in the BACKUP_DIR of the server: then the server copies. See "Recover a ledger" in '
            "the documentation."
        )


def has_lost_its_name(ledger: Path, holder: Holder) -> bool:
    """Return whether the file that the holder opened was moved, deleted or replaced since. The
    file that has its name now, if any, does not hold the events that the holder has."""
    if holder.ledger is None:
        return False
    try:
        found = ledger.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (found.st_dev, found.st_ino) != holder.ledger


def read_holder(ledger: Path) -> Holder | None:
    """Who holds the lock according to its file; None if nobody wrote there."""
    try:
        return msgspec.json.decode(lock_path(ledger).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _open_and_take(path: Path) -> int:
    """A file that lost its name before it was locked guards nothing: another has the name."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(fd)
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


def _take(fd: int) -> None:
    """Tries more than once: who looks for a holder has a shared lock for an instant."""
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                raise
            sleep(_SECONDS_BETWEEN_TRIES)
        else:
            return


def _note(fd: int, text: bytes) -> None:
    """The lock holds without a note: a full disk must not keep anybody from starting (F9)."""
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)


def _in_use(ledger: Path, holder: Holder | None) -> str:
    who = "another process" if holder is None else f"process {holder.pid}"
    where = f" at {holder.url}" if holder and holder.url else ""
    return (
        f"The ledger {ledger} is in use by {who}{where}: one SQLite file has one server. "
        "Stop that one, or set another DB_PATH."
    )


def _cannot_lock(path: Path, error: OSError) -> str:
    return (
        f"Cannot open {path}: {error.strerror}. The folder of DB_PATH must exist and be writable "
        "by the user that runs ackbox."
    )
