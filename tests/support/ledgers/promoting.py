"""Promotions of a ledger from SQLite to PostgreSQL: fill it, promote it, interrupt that, and read
both sides."""

import asyncio
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from ackbox.model import (
    Cursor,
    Done,
    OutcomeName,
    QuarantineBudget,
    RetentionPolicy,
    Status,
    fingerprint,
    make_sent_event,
    to_text,
)
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore, open_store
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.telemetry import ignore_facts
from support.databases.postgres import TESTS_PATH
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.ledgers.refused import refused
from support.ledgers.seeding import LONG_AGO, States
from support.servers.cli import Cli, environment
from support.servers.server import read_ledger
from support.time.clocks import ManualClock
from support.workers.event_runs import work

AT_ONCE = RetentionPolicy(
    keep=timedelta(0),
    keep_keys=timedelta(1),
    keep_after_end=timedelta(0),
    delete_delay=timedelta(0),
)
SMALL = (
    "import ackbox.stores.sqlite.admin.transfer_out as out; out._ROWS = 20;"
    "from ackbox.cli import main; main()"
)
"""Batches of few rows, so that a promotion can be interrupted at any point."""


class Everything:
    """A ledger that contains an example of every kind of row."""

    def __init__(self) -> None:
        self.states = States()
        self.old = envelope("old", at=LONG_AGO)
        self.tombstoned = envelope("tombstoned", at=LONG_AGO)
        self.sender = envelope("sender", at=LONG_AGO)
        self.later = envelope("later", lane="customer-1", at=LONG_AGO)
        self.delivery = envelope("delivery", at=LONG_AGO, outcome=OutcomeName.SPLIT)
        self.item = envelope("item", at=LONG_AGO, parent_id=self.delivery.id)
        self.unsigned = envelope(
            "unsigned", b"captured", at=LONG_AGO, fingerprint=fingerprint(b"captured")
        )
        self.twice = envelope(
            "twice", b"[1, 2]", at=LONG_AGO, headers='{"x-a":"1"}', parent_id=self.old.id
        )

    def make(self, path: Path) -> None:
        async def run() -> None:
            clock = ManualClock(LONG_AGO)
            store = await open_sqlite(path, clock=clock)
            await self._fill(store, clock)
            await store.close()

        asyncio.run(run())

    async def _fill(self, store: SqliteStore, clock: ManualClock) -> None:
        await record_in(store, [self.old, self.tombstoned], cursor=Cursor("feed", "page-7"))
        await work(store, [self.old])
        clock.advance(seconds=1)
        await store.add_tombstones(AT_ONCE, Status.COMPLETED, after=0)
        await store.prune(AT_ONCE)
        await work(store, [self.tombstoned])
        clock.advance(seconds=1)
        await store.add_tombstones(AT_ONCE, Status.COMPLETED, after=0)
        await self.states.seed(store)
        await store.replay([self.states.failed.id], actor="ann")
        await record_in(store, [self.later, self.twice, self.delivery, self.item, self.unsigned])
        await record_in(store, [envelope("twice", b"other", at=LONG_AGO)])
        requests = [refused(body=b"\x00\xff"), refused("stripe", delivery_id=self.twice.id)]
        await store.quarantine.keep(requests, QuarantineBudget(1 << 20, 1 << 20))
        await self._send(store)

    async def _send(self, store: SqliteStore) -> None:
        """Complete an event whose handler sent two others, which are not recorded yet."""
        await record_in(store, [self.sender])
        sent = [
            make_sent_event("sent", payload, key=f"sent-{n}", source="app", lane="customer-2")
            for n, payload in enumerate([{"n": 1}, b"\xff\x00exact"])
        ]
        await work(store, [self.sender], Done("handled", (), None, sent))


def promote(cli: Cli, url: str) -> str:
    done = cli("promote", "ackbox.db", url)
    assert done.code == 0, done.err
    return done.out


def halfway(folder: Path, url: str, progress: str) -> None:
    """Kill a promotion as soon as it prints this text."""
    process = subprocess.Popen(
        [sys.executable, "-c", SMALL, "promote", "ackbox.db", url],
        cwd=folder,
        env=environment({}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    for line in process.stderr:
        if progress in line:
            break
    else:
        raise AssertionError(f"{progress} was never printed")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)


def sqlite_rows(path: Path, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return read_ledger(path, f"SELECT {columns} FROM {table} ORDER BY 1, 2")


def postgres_rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    async def read() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url, server_settings={"search_path": TESTS_PATH})
        try:
            return [tuple(map(plain, row)) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(read())


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_text(value)
    return str(value) if isinstance(value, UUID) else value


def execute(url: str, sql: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url, server_settings={"search_path": TESTS_PATH})
        await connection.execute(sql)
        await connection.close()

    asyncio.run(run())


async def opened(url: str) -> PostgresStore:
    return await open_store(Address(url), clock=lambda: datetime.now(UTC), observe=ignore_facts)
