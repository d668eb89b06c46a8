"""Processes that touch a ledger: others, as a second server would, and what this one holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOLDS_A_READ = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM events").fetchall()
print("ready", flush=True)
sys.stdin.read()
"""

HOLDS_A_WRITE = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READWRITE)
connection.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.read()
"""

HOLDS_THE_LEDGER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from ackbox.stores.sqlite.store import open_store

async def main():
    store = await open_store(
        Path(sys.argv[1]),
        durability="full",
        clock=lambda: datetime.now(UTC),
        observe=lambda fact: None,
        on_fatal=lambda error: None,
    )
    store.advertise("http://127.0.0.1:8000")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def open_files(folder: Path) -> list[str]:
    """What this process holds open below the folder."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them is gone again
            found.append(str(link.readlink()))
    return sorted(target for target in found if target.startswith(str(folder)))


@contextmanager
def process(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs the script on the ledger; begins when it says that it is ready, ends by SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()
