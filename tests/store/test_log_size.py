"""F35: the write-ahead log stays small, and a reader that prevents this is reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import apsw
import pytest

from ackbox.model import EventFilter, Order
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.sqlite.write import checkpoints
from ackbox.telemetry import Checkpointed
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelopes, record_in
from support.ledgers.facts import Facts
from support.servers.processes import HOLDS_A_READ, process

PAGE = 4096
DUE, ALARM, KEPT = 50, 150, 200
SMALL = Limits(checkpoint_pages=DUE, alarm_pages=ALARM, log_bytes_kept=KEPT * PAGE)
"""The same rules with a hundredth of the size."""


@pytest.fixture
async def store(open_it: OpenStore) -> SqliteStore:
    return await open_it(durability="normal", limits=SMALL)


@pytest.fixture
async def reader(path: Path) -> AsyncIterator[SqliteReader]:
    opened = SqliteReader(path)
    yield opened
    await opened.close()


def log_pages(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size // PAGE


async def write(store: SqliteStore, path: Path, prefix: str, calls: int = 200) -> int:
    """Return the largest size of the log meanwhile, in pages."""
    largest = 0
    for n in range(calls):
        await record_in(store, envelopes(4, prefix=f"{prefix}-{n}", size=3000))
        largest = max(largest, log_pages(path))
    return largest


async def test_the_log_stays_small_under_load(
    store: SqliteStore, path: Path, facts: Facts
) -> None:  # F35
    assert await write(store, path, "load") < 2 * DUE
    assert len(facts.of(Checkpointed)) > 10


async def test_the_log_stays_small_while_readers_page_through_everything(
    store: SqliteStore, reader: SqliteReader, path: Path
) -> None:  # F35, L13
    done = asyncio.Event()

    async def page_for_ever() -> None:
        cursor = None
        while not done.is_set():
            page = await reader.events(EventFilter(), order=Order.OLDEST, limit=50, cursor=cursor)
            cursor = page.next

    readers = [asyncio.ensure_future(page_for_ever()) for _ in range(4)]
    largest = await write(store, path, "load")
    done.set()
    await asyncio.gather(*readers)
    assert largest < 3 * KEPT


async def test_a_stuck_reader_of_another_process_is_reported_and_the_log_shrinks_after_it(
    open_it: OpenStore, path: Path, facts: Facts
) -> None:  # F35
    limits = SMALL._replace(reader_wait_milliseconds=1)
    store = await open_it(durability="normal", limits=limits)
    with process(HOLDS_A_READ, path):
        largest = await write(store, path, "stuck", calls=60)
        assert largest > 2 * KEPT
        reported = facts.of(Checkpointed)[-1]
        assert reported.wal_pages > ALARM
        assert reported.copied_pages < reported.wal_pages
    await write(store, path, "after", calls=50)
    assert log_pages(path) <= KEPT + 1
    last = facts.of(Checkpointed)[-1]
    assert last.copied_pages == last.wal_pages < ALARM


async def test_a_log_left_large_by_a_crash_is_copied_back_soon(
    open_it: OpenStore, path: Path
) -> None:  # F35
    store = await open_it(limits=SMALL._replace(checkpoint_pages=1 << 30))
    await write(store, path, "before")
    large = {name: path.with_name(path.name + name).read_bytes() for name in ("", "-wal")}
    await store.close()
    for name, content in large.items():  # the files that a crash leaves
        path.with_name(path.name + name).write_bytes(content)
    again = await open_it(limits=SMALL)
    await write(again, path, "after", calls=2 * DUE)
    assert log_pages(path) <= KEPT + 1


def test_a_count_of_written_pages_that_overflows_stops_no_checkpoint(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps the count in 32 bits, which a busy ledger exceeds within weeks."""
    count = [2**32 - 10]
    monkeypatch.setattr(checkpoints, "_pages_written", lambda connection: count[0])
    reported = Facts()
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "wal")
        due = checkpoints.Checkpoints(connection, reported, SMALL)
        count[0] = 5
        due.run_if_due(connection)
        count[0] += DUE
        due.run_if_due(connection)
    assert len(reported.of(Checkpointed)) == 2


class LetsGo(apsw.Connection):
    """Signals that a checkpoint is about to wait."""

    on_patience: Callable[[int], None] | None = None

    def set_busy_timeout(self, milliseconds: int) -> None:
        super().set_busy_timeout(milliseconds)
        if self.on_patience is not None:
            self.on_patience(milliseconds)


def grow(connection: apsw.Connection, pages: int) -> None:
    for _ in range(pages):
        connection.execute("INSERT INTO grown VALUES (zeroblob(4000))")


def test_past_the_alarm_a_checkpoint_waits_a_moment_for_a_reader_to_end(path: Path) -> None:  # F35
    reported = Facts()
    writer, reader = LetsGo(str(path)), apsw.Connection(str(path))
    with closing(writer), closing(reader):
        writer.pragma("journal_mode", "wal")
        writer.execute("CREATE TABLE grown (content)")
        writer.wal_autocheckpoint(0)
        due = checkpoints.Checkpoints(writer, reported, SMALL)
        reader.execute("BEGIN; SELECT count(*) FROM grown").fetchall()
        grow(writer, ALARM + DUE)
        due.run_if_due(writer)
        ending = Thread(target=lambda: reader.execute("COMMIT"))
        writer.on_patience = lambda _: None if ending.ident else ending.start()
        grow(writer, DUE)
        due.run_if_due(writer)
        ending.join()
        grow(writer, DUE)
        due.run_if_due(writer)
    stuck, copied, small = reported.of(Checkpointed)
    assert stuck.wal_pages > ALARM
    assert stuck.copied_pages < stuck.wal_pages
    assert copied.copied_pages == copied.wal_pages > ALARM
    assert small.wal_pages < stuck.wal_pages  # the log has restarted
