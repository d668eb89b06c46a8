"""Who may write: the holder of an OS lock on `DB_PATH.lock`, freed by the kernel at any death."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import sleep

import msgspec
from msgspec import Struct

from ackbox.errors import LedgerInUse, StoreError

_TRIES = 3
_SECONDS_BETWEEN_TRIES = 0.01


class Holder(Struct, frozen=True):
    """What the lock file says of the process that holds it."""

    pid: int
    url: str | None = None


class LedgerLock:
    """Held from construction until `release`. `ledger` is the file itself, not a link to it."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger.resolve()
        path = lock_path(ledger)
        try:
            self._fd: int | None = _open_and_take(path)
        except BlockingIOError:
            raise LedgerInUse(_in_use(ledger, read_holder(ledger))) from None
        except OSError as error:
            raise StoreError(_cannot_lock(path, error)) from error
        self.describe(None)

    def describe(self, url: str | None) -> None:
        """Tell others who holds it, and where it answers."""
        if self._fd is not None:
            _note(self._fd, msgspec.json.encode(Holder(os.getpid(), url)))

    def release(self) -> None:
        """The file stays: removing it could take away a lock that another has just taken."""
        if self._fd is not None:
            fd, self._fd = self._fd, None  # its number may soon stand for another file
            _note(fd, b"")
            os.close(fd)


def lock_path(ledger: Path) -> Path:
    """Beside the file itself: a link to it must not lead to another lock."""
    file = ledger.resolve()
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


def read_holder(ledger: Path) -> Holder | None:
    """Who holds the lock according to its file; None if nobody wrote there."""
    try:
        return msgspec.json.decode(lock_path(ledger).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _open_and_take(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


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
