"""Shared locks besides those of SQLite: held while the ledger is open, even if others close it.

To see them alone, each test first drops SQLite's own locks, as any close of the file does.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ackbox.errors import OutcomeUnknown
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore
from support.faults.faulty_vfs import FaultyVfs, io_error_on_sync
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, noon, record_in

_TRY = """
import fcntl, sys
for path, length, start in (sys.argv[1], 510, 0x40000002), (sys.argv[1] + "-shm", 1, 128):
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except OSError:
            print("locked")
        else:
            print("free")
"""


def seen_from_outside(path: Path) -> list[str]:
    for suffix in ("", "-shm"):
        beside(path, suffix).read_bytes()  # the close drops the locks of SQLite
    done = subprocess.run(
        [sys.executable, "-c", _TRY, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


# N1
async def test_the_locks_outlive_a_close_of_the_file_in_this_process(
    open_it: OpenStore, path: Path
) -> None:
    store = await open_it()
    await record_in(store, [envelope("a")])
    assert seen_from_outside(path) == ["locked", "locked"]


# N1
async def test_the_locks_are_taken_again_after_a_reopen(
    faulty: SqliteStore, vfs: FaultyVfs, path: Path
) -> None:
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope("unknown")])
    vfs.heal()
    await record_in(faulty, [envelope("after")])
    assert seen_from_outside(path) == ["locked", "locked"]


# N1
async def test_an_orderly_close_leaves_no_lock_and_no_log(open_it: OpenStore, path: Path) -> None:
    store = await open_it()
    reader = SqliteReader(path)
    await record_in(store, [envelope("a")])
    await reader.stats(noon())
    await reader.close()
    await store.close()
    assert not beside(path, "-wal").exists()
    beside(path, "-shm").touch()
    assert seen_from_outside(path) == ["free", "free"]
