"""A file system that fails on demand: an apsw VFS over the default one.

A test injects a fault by operation and kind of file while the store runs, and removes it again. All
files opened through the VFS share its faults; a store opened without the VFS has none. Inject only
errors that a real VFS can return: SQLite relies on that. For example, it may take a read that fails
with "disk full" as a sign of a corrupt file.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event
from typing import Literal

import apsw

Operation = Literal["open", "read", "write", "sync", "truncate"]
Kind = Literal["db", "wal", "any"]
MakeError = Callable[[], Exception]

_numbers = count()


def io_error_on_sync() -> Exception:
    return _io_error(apsw.SQLITE_IOERR_FSYNC)


def io_error_on_write() -> Exception:
    return _io_error(apsw.SQLITE_IOERR_WRITE)


def io_error_on_read() -> Exception:
    return _io_error(apsw.SQLITE_IOERR_READ)


def disk_full() -> Exception:
    return apsw.FullError("injected: no space on the disk")


def cannot_open() -> Exception:
    return apsw.CantOpenError("injected: the file cannot be opened")


class Fault:
    """A fault that fails or blocks matching calls: `times` of them (None: all) after the first
    `skip`."""

    def __init__(
        self,
        operation: Operation,
        kind: Kind,
        error: MakeError | None,
        skip: int,
        times: int | None,
    ) -> None:
        self.hits = 0
        self.reached = Event()
        self._operation = operation
        self._kind = kind
        self._error = error
        self._skip = skip
        self._times = times
        self._released = Event()

    def release(self) -> None:
        """Let blocked calls continue, and do nothing from now on."""
        self._times = 0
        self._released.set()

    def inject(self, operation: Operation, kind: str) -> None:
        if operation != self._operation or self._kind not in {kind, "any"} or self._times == 0:
            return
        if self._skip:
            self._skip -= 1
            return
        self.hits += 1
        self.reached.set()
        if self._error is None:
            self._released.wait(30)
            return
        if self._times is not None:
            self._times -= 1
        raise self._error()


class FaultyVfs(apsw.VFS):
    """The VFS. Connections open it by `name`; `calls` counts every operation by kind of file."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.calls: Counter[tuple[Operation, str]] = Counter()
        self.opens_read_only = False
        self._faults: list[Fault] = []
        super().__init__(self.name, "")

    def fail(
        self,
        operation: Operation,
        kind: Kind,
        error: MakeError,
        *,
        skip: int = 0,
        times: int | None = 1,
    ) -> Fault:
        return self._add(Fault(operation, kind, error, skip, times))

    def block(self, operation: Operation, kind: Kind, *, skip: int = 0) -> Fault:
        """Block the call until the fault is released."""
        return self._add(Fault(operation, kind, None, skip, None))

    def heal(self) -> None:
        for fault in self._faults:
            fault.release()
        self._faults.clear()
        self.opens_read_only = False

    def inject(self, operation: Operation, kind: str) -> None:
        self.calls[operation, kind] += 1
        for fault in tuple(self._faults):
            fault.inject(operation, kind)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "FaultyFile":  # noqa: N802
        if self.opens_read_only:  # as SQLite does on a read-only file system
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        self.inject("open", _kind(_text(name)))
        return FaultyFile(self, name, flags)

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault


class FaultyFile(apsw.VFSFile):
    def __init__(
        self, vfs: FaultyVfs, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._vfs = vfs
        self._kind = _kind(_text(name))
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._vfs.inject("read", self._kind)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._vfs.inject("write", self._kind)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._vfs.inject("truncate", self._kind)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.inject("sync", self._kind)
        super().xSync(flags)


@contextmanager
def faulty_vfs() -> Iterator[FaultyVfs]:
    """Register a VFS for the block. No blocked call outlives the block."""
    vfs = FaultyVfs()
    try:
        yield vfs
    finally:
        vfs.heal()
        vfs.unregister()


def _io_error(code: int) -> Exception:
    error = apsw.exception_for(code)
    error.args = ("injected: disk I/O error",)
    return error


def _text(name: str | apsw.URIFilename | None) -> str:
    return name.filename() if isinstance(name, apsw.URIFilename) else name or ""


def _kind(path: str) -> str:
    if path.endswith("-wal"):
        return "wal"
    return "journal" if path.endswith("-journal") else "db"
