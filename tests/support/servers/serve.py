"""Run `ackbox` with changes. This is a script: its first argument is JSON with the changes, the
others are the arguments of `ackbox`:

- `set`: module constants, as in {"ackbox.http.connection:REQUEST_SECONDS": 0.5}, and arguments of
  the classes and functions that a module uses, as in {"ackbox.runtime:Monitor": {"seconds": 0.05}}
- `limits`: those of the SQLite store, as in {"backup_pages": 1}
- `open_files`: the limit of open files
- `starts_with`: a file; the ledger is not opened before this file exists
- `stalls`: a file that gets the longest stall of the event loop (`support.servers.loop_stalls`)
- `faults`: a file that names the current fault of the disk: one of `FAULTS`, followed by ` once` if
  it ends by itself, or `stall`, a sync that does not return; an empty file means no fault
"""

import asyncio
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from ackbox.cli import main as ackbox_main
from ackbox.http.server import Server, make_server
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.store import SqliteStore, open_store
from support.faults.faulty_vfs import FaultyFile, FaultyVfs
from support.servers.loop_stalls import record_stalls

STALL = "stall"
FAULTS: dict[str, tuple[str, Callable[[], Exception]]] = {
    "sync": ("sync", lambda: apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)),
    "full": ("write", lambda: apsw.FullError("injected: no room on the disk")),
    "read-only": ("write", lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE)),
}
"""The operation on the write-ahead log that fails, and its error, by the name of the fault."""


class FileControlledVfs(FaultyVfs):
    """A VFS that reads its fault from a file at every operation."""

    def __init__(self, fault_file: Path) -> None:
        self._fault_file = fault_file
        super().__init__()

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802
        self.opens_read_only = self._fault_file.read_text() == "read-only"
        return super().xOpen(name, flags)

    def inject(self, operation: Any, kind: str) -> None:
        while operation == "sync" and self._fault_file.read_text() == STALL:
            time.sleep(0.002)
        name, _, how_often = self._fault_file.read_text().partition(" ")
        failing, make_error = FAULTS.get(name, ("", Exception))
        if (operation, kind) == (failing, "wal"):
            if how_often == "once":
                self._fault_file.write_text("")
            raise make_error()


def set_constants(values: dict[str, Any]) -> None:
    for path, value in values.items():
        module_name, _, name = path.partition(":")
        module = importlib.import_module(module_name)
        assert hasattr(module, name), path
        is_called = isinstance(value, dict)
        setattr(module, name, partial(getattr(module, name), **value) if is_called else value)


async def open_store_late(signal: str, *args: Any, **named: Any) -> SqliteStore:
    while not Path(signal).exists():  # noqa: ASYNC110 - another process creates it
        await asyncio.sleep(0.005)
    return await open_store(*args, **named)


def make_probed_server(path: str, *args: Any, **named: Any) -> Server:
    server = make_server(*args, **named)
    vars(server)["stall_probe"] = asyncio.create_task(record_stalls(Path(path)))
    return server


def main() -> None:
    changes = json.loads(sys.argv[1])
    set_constants(changes.get("set", {}))
    if "limits" in changes:
        limits = Limits(**changes["limits"])
        set_constants({"ackbox.app.sqlite:open_store": partial(open_store, limits=limits)})
    if "open_files" in changes:
        resource.setrlimit(resource.RLIMIT_NOFILE, (changes["open_files"],) * 2)
    if "starts_with" in changes:
        set_constants(
            {"ackbox.app.sqlite:open_store": partial(open_store_late, changes["starts_with"])}
        )
    if "stalls" in changes:
        set_constants(
            {"ackbox.http.server:make_server": partial(make_probed_server, changes["stalls"])}
        )
    if "faults" in changes:
        vfs = FileControlledVfs(Path(changes["faults"]))
        set_constants({"ackbox.app.sqlite:open_store": partial(open_store, vfs=vfs.name)})
    sys.argv[1:] = sys.argv[2:]
    ackbox_main()


if __name__ == "__main__":
    main()
