"""A simulated power cut: an apsw VFS that records operations, and a disk rebuilt from the record.

Only synced data is sure to be on the disk. Of later writes, any subset may have reached it: none,
all, some in any order, and a part of a write (F1).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import apsw

Mode = Literal["none", "all", "random", "torn"]
MODES: tuple[Mode, ...] = ("none", "all", "random", "torn")

_numbers = count()


class Op(NamedTuple):
    kind: Literal["write", "truncate", "sync", "delete"]
    file: str
    offset: int = 0
    data: bytes = b""


class RecordingVfs(apsw.VFS):
    """The VFS. `initial` has the files that existed before; `ops` has every operation since, in
    order."""

    def __init__(self) -> None:
        self.name = f"recording-{next(_numbers)}"
        self.initial: dict[str, bytes] = {}
        self.ops: list[Op] = []
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "RecordingFile":  # noqa: N802
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        if path.name not in self.initial and path.exists():
            self.initial[path.name] = path.read_bytes()
        return RecordingFile(self.ops, path.name, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self.ops.append(Op("delete", Path(filename).name))


class RecordingFile(apsw.VFSFile):
    def __init__(
        self, ops: list[Op], file: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._ops = ops
        self._file = file
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._ops.append(Op("write", self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._ops.append(Op("truncate", self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._ops.append(Op("sync", self._file))


@contextmanager
def recording_vfs() -> Iterator[RecordingVfs]:
    vfs = RecordingVfs()
    try:
        yield vfs
    finally:
        vfs.unregister()


class Disk:
    """The synced content of the disk, and the writes that only the cache of the system has."""

    def __init__(self, initial: dict[str, bytes]) -> None:
        self._synced = {name: bytearray(content) for name, content in initial.items()}
        self._cached: dict[str, list[Op]] = {}

    def do(self, op: Op) -> None:
        if op.kind == "sync":
            for cached in self._cached.pop(op.file, []):
                _apply(self._synced, cached)
        else:
            self._cached.setdefault(op.file, []).append(op)

    def after_power_cut(self, mode: Mode, chance: Random) -> dict[str, bytearray]:
        files = {name: bytearray(content) for name, content in self._synced.items()}
        for ops in self._cached.values():
            for op in _survivors(ops, mode, chance):
                _apply(files, op)
        return files


def _survivors(ops: list[Op], mode: Mode, chance: Random) -> list[Op]:
    match mode:
        case "none":
            return []
        case "all":
            return ops
        case "random":
            return [op for op in ops if chance.random() < 0.5]
        case "torn":
            return [_tear(op, chance) for op in ops if chance.random() < 0.7]


def _tear(op: Op, chance: Random) -> Op:
    if op.kind != "write" or chance.random() < 0.5:
        return op
    start, end = sorted(chance.randrange(len(op.data) + 1) for _ in range(2))
    return op._replace(offset=op.offset + start, data=op.data[start:end])


def _apply(files: dict[str, bytearray], op: Op) -> None:
    if op.kind == "delete":
        files.pop(op.file, None)
        return
    content = files.setdefault(op.file, bytearray())
    if op.kind == "truncate":
        del content[op.offset :]
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data
