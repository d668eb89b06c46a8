"""Ledger files from outside, and only while no server runs on them."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import apsw

from bench import rows
from bench.failure import BenchFailed
from bench.server import clean_environment

PREFILL_CACHE_KIB = 1 << 20


def create(database: Path) -> None:
    """An empty ledger, made by ackbox itself."""
    _ackbox(["migrate"], {"DB_PATH": str(database)}, database.parent)


def grown(cache: Path, count: int) -> Path:
    """A ledger of `count` completed rows, made once per schema and kept: use a copy of it."""
    schema = hashlib.sha256(_ackbox(["migrate", "--sql"], {}, cache).encode()).hexdigest()[:12]
    ready = cache / f"grown-{count}-{schema}.db"
    if not ready.exists():
        for outdated in cache.glob(f"grown-{count}-*"):
            outdated.unlink()
        draft = ready.with_suffix(".draft")
        create(draft)
        _prefill(draft, count)
        draft.rename(ready)
    return ready


def copy(original: Path, target: Path) -> None:
    """On disk when it returns: the write-back of a large copy must not fall into a measurement."""
    shutil.copyfile(original, target)
    with target.open("rb+") as copied:
        os.fsync(copied.fileno())


def _prefill(database: Path, count: int) -> None:
    """Nothing here is durable until the end, nor need it be: a draft is thrown away."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA cache_size = -{PREFILL_CACHE_KIB}")
    with connection:
        connection.executemany(rows.INSERT, rows.completed(count, datetime.now(UTC)))
        _tally(connection, count)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def _tally(connection: apsw.Connection, count: int) -> None:
    """The ledger keeps its counts beside the rows; whoever writes past it must keep them too."""
    connection.execute(
        "UPDATE tallies SET events = events + ? WHERE status = 'completed'", (count,)
    )


def _ackbox(arguments: list[str], settings: Mapping[str, str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ackbox", *arguments],
        cwd=directory,
        env=clean_environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchFailed(f"`ackbox {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
