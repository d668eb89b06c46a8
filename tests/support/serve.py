"""A server process as `ackbox` makes it, with something changed first. Run as a script; its first
argument is JSON, the others are those of `ackbox`:

- `set`: module constants, as in {"ackbox.http.connection:REQUEST_SECONDS": 0.5}
- `open_files`: the limit of open files
- `starts_with`: a file; the ledger is not opened before it is there
- `stalls`: a file that gets the longest stall of the event loop (`support.loop_stalls`)
- `faults`: a file that names the fault the disk has now: one of `FAULTS`, followed by ` once` if it
  is to go by itself, or `stall`, which is a sync without end; empty means none
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
from ackbox.stores.sqlite.store import SqliteStore, open_store
from support.faulty_vfs import FaultyFile, FaultyVfs
from support.loop_stalls import watch_for_stalls

STALL = "stall"
FAULTS: dict[str, tuple[str, Callable[[], Exception]]] = {
    "sync": ("sync", lambda: apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)),
    "full": ("write", lambda: apsw.FullError("injected: no room on the disk")),
    "read-only": ("write", lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE)),
}
"""By what fails on the write-ahead log, and how."""


class ToldByFile(FaultyVfs):
    """Looks up its fault whenever SQLite uses it."""

    def __init__(self, orders: Path) -> None:
        self._orders = orders
        super().__init__()

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802
        self.opens_read_only = self._orders.read_text() == "read-only"
        return super().xOpen(name, flags)

    def meet(self, operation: Any, kind: str) -> None:
        while operation == "sync" and self._orders.read_text() == STALL:
            time.sleep(0.002)
        name, _, how_often = self._orders.read_text().partition(" ")
        failing, make_error = FAULTS.get(name, ("", Exception))
        if (operation, kind) == (failing, "wal"):
            if how_often == "once":
                self._orders.write_text("")
            raise make_error()


def set_constants(values: dict[str, Any]) -> None:
    for place, value in values.items():
        module, _, name = place.partition(":")
        found = importlib.import_module(module)
        assert hasattr(found, name), place
        setattr(found, name, value)


async def open_store_late(signal: str, *args: Any, **named: Any) -> SqliteStore:
    while not Path(signal).exists():  # noqa: ASYNC110 - it is another process that makes it
        await asyncio.sleep(0.005)
    return await open_store(*args, **named)


def make_watched_server(path: str, *args: Any, **named: Any) -> Server:
    server = make_server(*args, **named)
    vars(server)["stall_watch"] = asyncio.create_task(watch_for_stalls(Path(path)))
    return server


def main() -> None:
    changes = json.loads(sys.argv[1])
    set_constants(changes.get("set", {}))
    if "open_files" in changes:
        resource.setrlimit(resource.RLIMIT_NOFILE, (changes["open_files"],) * 2)
    if "starts_with" in changes:
        set_constants(
            {"ackbox.app.sqlite:open_store": partial(open_store_late, changes["starts_with"])}
        )
    if "stalls" in changes:
        set_constants(
            {"ackbox.http.server:make_server": partial(make_watched_server, changes["stalls"])}
        )
    if "faults" in changes:
        vfs = ToldByFile(Path(changes["faults"]))
        set_constants({"ackbox.app.sqlite:open_store": partial(open_store, vfs=vfs.name)})
    sys.argv[1:] = sys.argv[2:]
    ackbox_main()


if __name__ == "__main__":
    main()
