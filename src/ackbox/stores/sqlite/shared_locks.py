"""Shared locks that keep any other connection from deleting the log of an open ledger.

SQLite's own locks are POSIX locks. They do not conflict inside one process, and every close of the
file there drops all of them. So a second SQLite library in this process takes itself for the only
connection: when it closes, it deletes the log under ours, and what was acknowledged goes with it.
Locks of an open file description (OFD) conflict with the POSIX locks of the same process too, and
stay until their own descriptor is closed. Measured in docs/adr/0026-three-layers-for-the-log.md.
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
# What a connection in WAL mode locks for itself alone before it deletes the log ...
_SHARED_BYTES = (0x40000002, 510)
# ... and the byte by which the first connection knows that it may start a new index of the log.
_FIRST_CONNECTION_BYTE = (128, 1)


class SharedLocks:
    """Taken while a connection is open, and again after every reopen. While they are held, only
    reading and writing are possible: no connection deletes the log or starts a new index."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._bytes = {ledger: _SHARED_BYTES, beside(ledger, "-shm"): _FIRST_CONNECTION_BYTE}
        self._descriptors: dict[Path, int] = {}

    def take(self) -> None:
        """Lock the files that bear these names now. A connection must be open on them."""
        for path, where in self._bytes.items():
            try:
                _set_lock(self._descriptor(path), fcntl.F_RDLCK, where)
            except OSError as error:
                raise StoreError(f"Cannot lock {path}: {error.strerror}.") from error

    def stat_ledger(self) -> os.stat_result:
        """Describe the ledger that was locked, whatever bears its name now."""
        return os.fstat(self._descriptors[self._ledger])

    def release(self) -> None:
        """Let SQLite fold the log into the file when it closes. The descriptors stay open: closing
        one would drop the locks of every connection that this process has on the file."""
        for path, fd in self._descriptors.items():
            _set_lock(fd, fcntl.F_UNLCK, self._bytes[path])

    def close(self) -> None:
        """Close the descriptors, when no connection of this process is open any more."""
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
    """Where the system or the file system has no such locks, go on without: the other two layers
    hold without them."""
    if _SET_LOCK is None:
        return
    try:
        fcntl.fcntl(fd, _SET_LOCK, struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0))
    except BlockingIOError:
        raise Unavailable("Another connection has the ledger for itself alone.") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
