"""A ledger with events in every state, made before a server or a command opens it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ackbox.model import Envelope, Release
from ackbox.ports import Store
from ackbox.stores.sqlite.store import SqliteStore
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.time.clocks import ManualClock
from support.workers.event_runs import DEAD, DONE, claim, retry_later, work

LONG_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
Seed = Callable[[SqliteStore], Awaitable[None]]


class States:
    """One event in each state, from one source; the completed one has the source `other`."""

    def __init__(self, source: str = "webhooks", other: str = "shop") -> None:
        self._source = source
        self.pending = self._envelope("pending", payload=b"\xff\x00exact")
        self.retrying = self._envelope("retrying")
        self.parked = self._envelope("parked")
        self.running = self._envelope("running")
        self.completed = self._envelope("completed", source=other, source_sequence=2)
        self.failed = self._envelope("failed", event_type="order.paid")
        self.head = self._envelope("head", lane="customer-1")
        self.behind = self._envelope("behind", lane="customer-1")
        self.all = [value for value in vars(self).values() if isinstance(value, Envelope)]

    def _envelope(self, key: str, **more: Any) -> Envelope:
        return envelope(key, at=LONG_AGO, **{"source": self._source, **more})

    async def seed(self, store: Store) -> None:
        await record_in(store, self.all)
        await work(store, [self.completed], DONE)
        await work(store, [self.failed], DEAD)
        await work(store, [self.retrying], retry_later(timedelta(days=1)))
        await work(store, [self.parked], Release(parked=True))
        await claim(store, self.running.id)


def seed(path: Path, fill: Seed) -> Path:
    """Fill a new ledger with a clock that shows two hours ago."""

    async def run() -> None:
        store = await open_sqlite(path, clock=ManualClock(LONG_AGO))
        await fill(store)
        await store.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(run())
    return path
