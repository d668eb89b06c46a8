"""New events by a Redis stream, by NOTIFY, and by polling: how soon other instances run them, and
what that costs the database. Real servers, `ackbox work` processes with an empty handler."""
# ruff: noqa: ASYNC110, E402, T201

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from support.databases.postgres import PostgresServer, find_installs, running_postgres
from support.databases.valkey import running_valkey
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.instances import joined

APP = """
from ackbox import Inbox

inbox = Inbox()

@inbox.on("*")
async def handle(event):
    pass
"""
RATE, SECONDS, BACKLOG = 50, 8, 20_000
LATENCY = """SELECT round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY took))
    || '|' || round(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY took))
FROM (SELECT extract(epoch FROM processed_at - created_at) AS took FROM events
      WHERE status = 'completed' AND idempotency_key LIKE 'steady-%')"""
SPAN = "SELECT round(count(*) / extract(epoch FROM max(processed_at) - min(processed_at)))"
OPEN = "SELECT count(*) FROM events WHERE status <> 'completed'"
LOAD = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def workers(count: int, folder: Path, settings: dict[str, str]) -> Iterator[None]:
    (folder / "worked.py").write_text(APP)
    env = {**os.environ, "PORT": "0", "LOG_LEVEL": "WARNING", **settings}
    command = [sys.executable, "-m", "ackbox", "work", "worked:inbox"]
    started = [subprocess.Popen(command, cwd=folder, env=env) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


class Bench:
    def __init__(self, server: PostgresServer, queue_url: str | None, notify: str) -> None:
        self.server = server
        self.url = server.create_database()
        self.queue_url = queue_url
        self.notify = notify == "on"
        self.settings = {"DATABASE_URL": self.url, "NOTIFY": notify}
        if queue_url is not None:
            self.settings["QUEUE_URL"] = queue_url

    def ask(self, sql: str) -> str:
        return self.server.execute(sql, self.url.rpartition("/")[2])

    async def steady(self, count: int, folder: Path) -> str:
        async with joined(self.url, self.queue_url, "door", notify=self.notify) as door:
            with workers(count, folder, self.settings):
                await asyncio.sleep(2 + count)
                idle, cpu = await self._load(3)
                started, before, used = monotonic(), int(self.ask(LOAD)), self._cpu()
                for n in range(RATE * SECONDS):
                    await asyncio.sleep(max(started + n / RATE - monotonic(), 0))
                    await record_in(door.store, [envelope(f"steady-{n}")])
                while int(self.ask(OPEN)):
                    await asyncio.sleep(0.1)
                await asyncio.sleep(1)
                took = monotonic() - started
                each = (int(self.ask(LOAD)) - before - idle * took) / (RATE * SECONDS)
                spent = (self._cpu() - used - cpu * took) / (RATE * SECONDS)
        p50, p99 = self.ask(LATENCY).split("|")
        return f"p50 {p50} ms | p99 {p99} ms | {each:.1f} | {1000 * spent:.1f} ms"

    async def backlog(self, count: int, folder: Path) -> str:
        async with joined(self.url, self.queue_url, "door", notify=self.notify) as door:
            started = monotonic()
            for start in range(0, BACKLOG, 200):
                await record_in(door.store, envelopes(200, prefix=f"backlog-{start}"))
            recorded = BACKLOG / (monotonic() - started)
            with workers(count, folder, self.settings):
                while int(self.ask(OPEN)):
                    await asyncio.sleep(0.5)
        where = "FROM events WHERE idempotency_key LIKE 'backlog-%'"
        return f"recorded {recorded:,.0f}/s | run {int(self.ask(f'{SPAN} {where}')):,}/s"

    async def _load(self, seconds: int) -> tuple[float, float]:
        """What all of them do when nothing comes, by the second."""
        before, used = int(self.ask(LOAD)), self._cpu()
        await asyncio.sleep(seconds)
        return (int(self.ask(LOAD)) - before) / seconds, (self._cpu() - used) / seconds

    def _cpu(self) -> float:
        """Seconds that the server's processes have used, those that ended included."""
        postmaster = (self.server.data / "postmaster.pid").read_text().splitlines()[0]
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if stat.parent.name == postmaster:
                ticks += sum(int(field) for field in fields[11:15])
            elif fields[1] == postmaster:
                ticks += sum(int(field) for field in fields[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    counts = [int(argument) for argument in sys.argv[1:]] or [2, 8]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        valkey = stack.enter_context(running_valkey(folder))
        server = stack.enter_context(running_postgres(find_installs()[-1], max_connections="300"))
        print("instances | by | accepted to completed | | statements/event | server CPU/event")
        for count in counts:
            for number, (name, url, notify) in enumerate(
                [
                    ("polling", None, "off"),
                    ("NOTIFY", None, "on"),
                    ("stream", valkey.url(count % 16), "off"),
                ]
            ):
                bench = Bench(server, url, notify)
                print(count, name, asyncio.run(bench.steady(count, folder)), sep=" | ", flush=True)
                if number and count == counts[0]:
                    print("   backlog |", asyncio.run(bench.backlog(count, folder)), flush=True)
                server.drop_database(bench.url)


if __name__ == "__main__":
    main()
