"""Ledger files from outside, and only while no server runs on them."""

import hashlib
import itertools
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from bench import rows, traffic
from bench.failure import BenchFailed
from bench.server import clean_environment

PREFILL_CACHE_KIB = 1 << 20
Values = Mapping[str, str | int] | Sequence[str | int]
HEADER_PRAGMAS = ("application_id", "auto_vacuum", "page_size", "user_version")


def create(database: Path) -> None:
    """An empty ledger, made by ackbox itself."""
    done = subprocess.run(
        [sys.executable, "-m", "ackbox", "migrate"],
        cwd=database.parent,
        env=clean_environment({"DB_PATH": str(database)}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchFailed(f"`ackbox migrate` failed: {done.stderr.strip()}")


def grown(cache: Path, count: int) -> Path:
    """A ledger of `count` completed rows, made once per schema and kept: use a copy of it."""
    draft = cache / "draft.db"
    for leftover in cache.glob("draft.db*"):
        leftover.unlink()
    create(draft)
    ready = cache / f"grown-{count}-{_schema(draft)}.db"
    if not ready.exists():
        for outdated in cache.glob(f"grown-{count}-*"):
            outdated.unlink()
        _prefill(draft, rows.completed(count, datetime.now(UTC)))
        draft.rename(ready)
    return ready


def preload(database: Path, count: int) -> None:
    """A ledger of `count` pending rows, on disk when it returns."""
    create(database)
    run = secrets.token_hex(traffic.RUN_ID_LENGTH // 2)
    _prefill(database, itertools.islice(rows.pending(run), count))
    _sync(database)


def read(database: Path, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(sql, values))
    finally:
        connection.close()


def copy(original: Path, target: Path) -> None:
    """On disk when it returns: the write-back of a large copy must not fall into a measurement."""
    shutil.copyfile(original, target)
    _sync(target)


def _sync(file: Path) -> None:
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _schema(database: Path) -> str:
    """A checksum of all that makes ackbox take one file and refuse another."""
    rows_read = read(database, "SELECT name, sql FROM sqlite_schema ORDER BY name")
    rows_read += read(database, "SELECT version, checksum FROM schema_migrations")
    rows_read += [(name, *read(database, f"PRAGMA {name}")[0]) for name in HEADER_PRAGMAS]
    return hashlib.sha256(repr(rows_read).encode()).hexdigest()[:12]


def _prefill(database: Path, content: Iterable[rows.Row]) -> None:
    """Nothing here is durable until the end, nor need it be: a draft is thrown away."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    connection.execute(f"PRAGMA cache_size = -{PREFILL_CACHE_KIB}")
    with connection:
        connection.executemany(rows.INSERT, content)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
