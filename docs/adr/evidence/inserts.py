"""ADR 12: 64 rows a commit on a thread, beside a busy event loop, by three kinds of statement."""
# ruff: noqa: T201

import asyncio
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, thread_time

import apsw
import uvloop

from ackbox.stores.sqlite.connections import open_writer
from ackbox.stores.sqlite.files import create_ledger
from ackbox.stores.sqlite.statements import blocks

ROWS, BATCHES, ROUNDS = 64, 300, 9
NOW = "2026-01-31T12:00:00.000000Z"
Row = tuple[str | bytes | None, ...]

VALUES = "(" + ", ".join("?" * 16) + ")"
NOTHING = blocks()["record"]
UPSERT = NOTHING.replace(
    "DO NOTHING",
    "DO UPDATE SET ingest_count = ingest_count + 1 RETURNING id, status, created_at, ingest_count",
)


def make_row() -> Row:
    event = (os.urandom(16).hex(), "webhooks", os.urandom(12).hex(), "order.paid")
    body = (b"x" * 300, b"y" * 32, NOW, "application/json", None)
    return (*event, *body, None, None, None, "http", None, None, None)


def one_by_one(connection: apsw.Connection, rows: list[Row]) -> None:
    for row in rows:
        connection.execute(UPSERT, row).fetchall()


def together(connection: apsw.Connection, rows: list[Row]) -> None:
    sql = UPSERT.replace(VALUES, ", ".join([VALUES] * ROWS))
    connection.execute(sql, tuple(chain.from_iterable(rows))).fetchall()


def do_nothing(connection: apsw.Connection, rows: list[Row]) -> None:
    sql = NOTHING.replace(VALUES, ", ".join([VALUES] * ROWS))
    connection.execute(sql, tuple(chain.from_iterable(rows)))


def measure(store: Callable[[apsw.Connection, list[Row]], None]) -> tuple[float, float]:
    """Rows a second, and microseconds of the thread's CPU a row."""
    batches = [[make_row() for _ in range(ROWS)] for _ in range(BATCHES)]
    cpu: list[float] = []
    with TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "ledger.db"
        create_ledger(path)
        connection = open_writer(path, durability="full")

        def write() -> None:
            before = thread_time()
            for rows in batches:
                connection.execute("BEGIN IMMEDIATE")
                store(connection, rows)
                connection.execute("COMMIT")
            cpu.append(thread_time() - before)

        started = perf_counter()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(keep_busy_beside(Thread(target=write)))
        seconds = perf_counter() - started
        connection.close()
    return ROWS * BATCHES / seconds, cpu[0] / ROWS / BATCHES * 1e6


async def keep_busy_beside(thread: Thread) -> None:
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0)
        sum(range(200))


if __name__ == "__main__":
    kinds = {
        "upsert RETURNING, row by row": one_by_one,
        "upsert RETURNING, 64 rows": together,
        "DO NOTHING, 64 rows": do_nothing,
    }
    seen = [(name, measure(store)) for _ in range(ROUNDS) for name, store in kinds.items()]
    for name in kinds:
        rate = median(found[0] for kind, found in seen if kind == name)
        cpu = median(found[1] for kind, found in seen if kind == name)
        print(f"{name}: {rate:.0f} rows/s, {cpu:.1f} us CPU of the writer a row")
