"""The reader of SQLite: changes between two of its statements, and reads that take too long."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ackbox.errors import LedgerCorrupt, Unavailable
from ackbox.model import EventFilter, EventRecord, Order
from ackbox.stores import paging
from ackbox.stores.sqlite.read import pages as pages_module
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, envelopes, noon, record_in


@pytest.fixture
async def store(open_it: OpenStore) -> SqliteStore:
    return await open_it()


@pytest.fixture
async def reader(store: SqliteStore, path: Path) -> AsyncIterator[SqliteReader]:
    opened = SqliteReader(path)
    yield opened
    await opened.close()


@pytest.mark.parametrize("order", list(Order))
async def test_an_event_pruned_while_its_page_is_read_ends_no_listing(
    store: SqliteStore, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    """A page is two statements: one for the ids, one for the events. Retention may run in
    between."""
    await record_in(store, envelopes(20))
    records = pages_module.records

    def lose_the_last(run: Any, ids: list[str]) -> list[EventRecord]:
        return records(run, ids[:-1])

    monkeypatch.setattr(pages_module, "records", lose_the_last)
    where = EventFilter(source="webhooks")
    first = await reader.events(where, order=order, limit=5)
    assert len(first.items) == 4
    assert first.next is not None
    second = await reader.events(where, order=order, limit=5, cursor=first.next)
    assert len(second.items) == 4
    gap = abs(second.items[0].ledger_id - first.items[-1].ledger_id)
    assert gap == 2  # the pruned event, and no other


@pytest.mark.parametrize("order", list(Order))
async def test_a_rare_filter_reads_few_rows_per_page_and_still_finds_all(
    store: SqliteStore, reader: SqliteReader, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:  # L13: short pages with a `next`, never a long read
    monkeypatch.setattr(paging, "WINDOW", 10)
    rare = [envelope(f"rare-{n}", event_type="rare") for n in range(3)]
    for sent in rare:
        await record_in(store, [*envelopes(25, prefix=sent.idempotency_key + "-usual"), sent])
    listed, pages, cursor = [], 0, None
    while pages == 0 or cursor is not None:
        page = await reader.events(
            EventFilter(event_type="rare"), order=order, limit=5, cursor=cursor
        )
        listed += [event.id for event in page.items]
        cursor, pages = page.next, pages + 1
    assert sorted(listed) == sorted(sent.id for sent in rare)
    assert pages >= 78 // 10


async def test_a_read_that_takes_too_long_is_stopped_and_the_next_one_works(
    store: SqliteStore, path: Path
) -> None:  # L13, F35
    await record_in(store, envelopes(2000))
    reader = SqliteReader(path, seconds=-1.0)
    with pytest.raises(Unavailable, match="too long"):
        await reader.events(EventFilter(source="nobody"), order=Order.NEWEST, limit=5)
    assert (await reader.stats(noon())).pending == 2000  # few steps, on the same connection
    await reader.close()


async def test_a_read_holds_no_snapshot_open(
    store: SqliteStore, reader: SqliteReader
) -> None:  # L13
    await record_in(store, envelopes(100))
    await asyncio.gather(*[reader.stats(noon()) for _ in range(10)])
    opened = [connection for connection in reader.connections._idle.queue if connection]
    assert opened
    assert not any(connection.in_transaction for connection in opened)
    busy, _ = await store._writer.submit(
        lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][:2],
        outside_transaction=True,
    )
    assert busy == 0


async def test_a_missing_file_is_unavailable_and_is_not_created(path: Path) -> None:
    reader = SqliteReader(path)
    with pytest.raises(Unavailable):
        await reader.stats(noon())
    assert list(path.parent.iterdir()) == []
    await reader.close()


async def test_damage_met_by_a_reader_says_how_to_recover(path: Path) -> None:  # F16
    path.write_bytes(b"no database" * 1000)
    reader = SqliteReader(path)
    with pytest.raises(LedgerCorrupt, match="recover"):
        await reader.stats(noon())
    await reader.close()


async def test_a_reader_never_used_closes(path: Path) -> None:
    threads = threading.active_count()
    await SqliteReader(path).close()
    assert threading.active_count() <= threads + 1  # asyncio's own, which ends with the loop
    assert not path.exists()
