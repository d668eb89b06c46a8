"""Shared locks that keep any other connection from deleting the log of an open ledger.

SQLite's own locks are POSIX locks. They do not conflict inside one process, and every close of the
file in that process drops all of them. So a second SQLite library in this process believes that it
has the only connection. When it closes, it deletes the log that our connection uses, and
acknowledged events are lost. Locks of an open file description (OFD) conflict with the POSIX locks
of the same process too, and stay until their own descriptor is closed.
docs/adr/0026-three-layers-for-the-log.md has the measurements.
"""

import errno
import fcntl
import os
import struct
import sys
from pathlib import Path

from ackbox.errors import StoreError, Unavailable
from ackbox.stores.sqlite.names import beside

_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", 37 if sys.platform == "linux" else None)
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP))
# The bytes that a connection in WAL mode locks exclusively before it deletes the log.
_SHARED_BYTES = (0x40000002, 510)
# The byte that a connection locks exclusively to find out that it is the first, and may start a new
# index of the log.
_FIRST_CONNECTION_BYTE = (128, 1)


class SharedLocks:
    """Locks that the writer takes while a connection is open, and again after every reopen.

    While they are held, other connections can read and write, but none can delete the log or start
    a new index.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._bytes = {ledger: _SHARED_BYTES, beside(ledger, "-shm"): _FIRST_CONNECTION_BYTE}
        self._descriptors: dict[Path, int] = {}

    def take(self) -> None:
        """Lock the files that have these names now. A connection must be open on them."""
        for path, where in self._bytes.items():
            try:
                _set_lock(self._descriptor(path), fcntl.F_RDLCK, where)
            except OSError as error:
                raise StoreError(f"Cannot lock {path}: {error.strerror}.") from error

    def stat_ledger(self) -> os.stat_result:
        """Return the status of the ledger that was locked, whichever file has its name now."""
        return os.fstat(self._descriptors[self._ledger])

    def release(self) -> None:
        """Unlock, so that SQLite copies the log into the file when it closes. The descriptors stay
        open: closing one would drop the locks of all connections of this process to the file."""
        for path, fd in self._descriptors.items():
            _set_lock(fd, fcntl.F_UNLCK, self._bytes[path])

    def close(self) -> None:
        """Close the descriptors. No connection of this process may be open any more."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _descriptor(self, path: Path) -> int:
        known = self._descriptors.get(path)
        if known is not None:
            if os.path.samestat(os.fstat(known), path.stat()):
                return known
            os.close(self._descriptors.pop(path))
        self._descriptors[path] = fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd


def _set_lock(fd: int, kind: int, where: tuple[int, int]) -> None:
    """Set a lock. Do nothing if the system or the file system has no such locks: the other two
    layers of ADR 26 work without them."""
    if _SET_LOCK is None:
        return
    try:
        fcntl.fcntl(fd, _SET_LOCK, struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0))
    except BlockingIOError:
        raise Unavailable("Another connection has an exclusive lock on the ledger.") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
