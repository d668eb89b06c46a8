"""How long a commit of the writer takes beside a busy event loop, by `sys.setswitchinterval`."""
# ruff: noqa: T201

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from time import perf_counter, thread_time

import apsw

ROUNDS, SECONDS, CALLS, CONNECTIONS = 5, 1.0, 12, 64
INTERVALS = (0.005, 0.001, 0.0005, 0.0001)


class Committing(Thread):
    """A few statements and a synced COMMIT, over and over, as the writer does under load."""

    def __init__(self, path: Path, stop: Event) -> None:
        super().__init__()
        self.walls: list[float] = []
        self.cpus: list[float] = []
        self._path = path
        self._halt = stop

    def run(self) -> None:
        connection = apsw.Connection(str(self._path))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
        while not self._halt.is_set():
            wall, cpu = perf_counter(), thread_time()
            connection.execute("BEGIN IMMEDIATE")
            for n in range(CALLS):
                connection.execute("INSERT INTO t VALUES (?)", (n,))
            connection.execute("COMMIT")
            self.walls.append(perf_counter() - wall)
            self.cpus.append(thread_time() - cpu)
        connection.close()


async def work(until: float) -> int:
    """A turn of the loop: what 64 connections have brought, in pure Python, until it looks at the
    sockets again."""
    turns = 0
    while perf_counter() < until:
        for _ in range(CONNECTIONS):
            sum(i * i for i in range(1000))
        turns += 1
        await asyncio.sleep(0)
    return turns


def measure(interval: float, *, busy: bool) -> tuple[list[float], list[float], int]:
    sys.setswitchinterval(interval)
    stop = Event()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        thread = Committing(Path(folder) / "t.db", stop)
        thread.start()
        until = perf_counter() + SECONDS
        turns = asyncio.run(work(until) if busy else asyncio.sleep(SECONDS, 0))
        stop.set()
        thread.join()
    return thread.walls, thread.cpus, turns


def show(name: str, walls: list[float], cpus: list[float], turns: float) -> None:
    cuts = quantiles(walls, n=100)
    cpu = sum(cpus) / len(cpus)
    rate = len(walls) / ROUNDS / SECONDS
    print(
        f"{name:>22}: commit p50 {cuts[49] * 1e3:5.2f} ms, p99 {cuts[98] * 1e3:6.2f} ms, "
        f"its own CPU {cpu * 1e3:.2f} ms; {rate:5.0f} commits/s, loop {turns:6.0f} turns/s"
    )


def main() -> None:
    for interval, busy in [(0.005, False), *((each, True) for each in INTERVALS)]:
        found = [measure(interval, busy=busy) for _ in range(ROUNDS)]
        walls = [wall for walls, _, _ in found for wall in walls]
        cpus = [cpu for _, cpus, _ in found for cpu in cpus]
        turns = sum(turns for _, _, turns in found) / ROUNDS / SECONDS
        name = f"busy loop, {interval * 1e3:g} ms" if busy else "idle loop"
        show(name, walls, cpus, turns)


if __name__ == "__main__":
    main()
