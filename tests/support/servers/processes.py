"""Other processes that use a ledger, and the files that this process has open."""

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
    store._lock.describe("http://127.0.0.1:8000")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def open_files(folder: Path) -> list[str]:
    """Return the files below the folder that this process has open."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself is closed again
            targets.append(str(link.readlink()))
    return sorted(target for target in targets if target.startswith(str(folder)))


@contextmanager
def process(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the script on the ledger. The block begins when the script is ready, and ends with
    SIGKILL."""
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
