"""Who may write: the holder of an OS lock on `DB_PATH.lock`, freed by the kernel at any death."""

import fcntl
import os
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
    """Held from construction until `release`."""

    def __init__(self, ledger: Path) -> None:
        self._path = lock_path(ledger)
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(_cannot_lock(self._path, error)) from error
        if not _take(self._fd):
            os.close(self._fd)
            raise LedgerInUse(_in_use(ledger, read_holder(ledger)))
        self.describe(None)

    def describe(self, url: str | None) -> None:
        """Tell others who holds it, and where it answers."""
        note = msgspec.json.encode(Holder(os.getpid(), url))
        os.pwrite(self._fd, note, 0)
        os.ftruncate(self._fd, len(note))

    def release(self) -> None:
        """The file stays: removing it could take away a lock that another has just taken."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


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


def _take(fd: int) -> bool:
    """Tries more than once: who looks for a holder has a shared lock for an instant."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sleep(_SECONDS_BETWEEN_TRIES)
        else:
            return True
    return False


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
