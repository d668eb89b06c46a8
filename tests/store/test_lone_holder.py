"""Behaviour of a store that one process holds: only SQLite's."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from ackbox.model import RetentionPolicy, Status
from ackbox.stores.sqlite.services import SpaceReclaimer
from ackbox.stores.sqlite.write.recovery import recover
from ackbox.stores.sqlite.write.retention import reclaim_space
from ackbox.telemetry import SpaceReclaimed
from support.ledgers.backends import SqliteBackend
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts
from support.workers.event_runs import DONE, work
from support.workers.queue_worker import QueueWorker

POLICY = RetentionPolicy(keep=timedelta(days=30), keep_keys=timedelta(days=7))


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    opened = SqliteBackend(tmp_path)
    await opened.open()
    yield opened
    await opened.close()


async def test_a_restart_ends_all_leases_at_once(backend: SqliteBackend) -> None:  # W4, F5
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope(key) for key in "abc"])
    await me.claim()
    await recover(backend.store._writer, backend.clock())
    assert {r["status"] for r in await backend.rows()} == {"processing"}
    reclaimed = await me.claim()
    assert [(c.idempotency_key, c.run, c.unsettled) for c in reclaimed] == [
        *(("a", 2, 1), ("b", 2, 1), ("c", 2, 1)),
    ]


# F36
async def test_space_is_reclaimed_a_little_at_a_time(
    backend: SqliteBackend,
) -> None:
    sent = envelopes(400, size=8000)
    await record_in(backend.store, sent)
    await work(backend.store, sent, DONE)
    backend.clock.advance(days=31)
    after_row: int | None = 0
    while after_row is not None:
        after_row = (
            await backend.store.add_tombstones(POLICY, Status.COMPLETED, after=after_row)
        ).next
    backend.clock.advance(minutes=1)
    while (await backend.store.prune(POLICY)).more:
        pass
    steps = [await backend.store._writer.run(reclaim_space, 0)]
    while steps[-1]:
        steps.append(await backend.store._writer.run(reclaim_space, 0))
    assert sum(steps) > 400
    assert max(steps) <= 128


# F36
async def test_the_service_returns_the_pages_of_deleted_rows_and_pauses_longer_beside_senders(
    backend: SqliteBackend,
) -> None:
    facts, seconds = Facts(), count()
    pauses: list[float] = []

    async def sleep(pause: float) -> None:
        pauses.append(pause)

    await record_in(backend.store, envelopes(400, size=8000))
    await backend.store._writer.submit(lambda c: c.execute("DELETE FROM events").get)
    reclaimer = SpaceReclaimer(
        backend.store._writer,
        facts,
        spare_pages=0,
        sleep=sleep,
        monotonic=lambda: float(next(seconds)),
    )
    reclaimer.is_busy = True
    while not facts:
        await reclaimer.step()
    assert [fact.pages > 400 for fact in facts.of(SpaceReclaimed)] == [True]
    assert pauses[:2] == [99.0, 4.0]
    waiting = asyncio.ensure_future(reclaimer.step())
    await asyncio.sleep(0)
    assert not waiting.done()
    reclaimer.note_deleted(1)
    await waiting
