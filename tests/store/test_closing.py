"""Closing the store: completely, once, and from any state."""

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.errors import LedgerInUse, OutcomeUnknown, Stopped, Unavailable
from ackbox.stores.sqlite import store as store_module
from ackbox.stores.sqlite.files import open_ledger
from ackbox.stores.sqlite.lock import find_holder, lock_path
from ackbox.stores.sqlite.store import SqliteStore
from support.faults.faulty_vfs import FaultyVfs, cannot_open, io_error_on_sync
from support.faults.gathering import gathering
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, envelopes, record_in
from support.time.polling import until


def writers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "ackbox-writer"]


async def test_closing_ends_the_thread_and_frees_the_lock(path: Path) -> None:
    store = await open_sqlite(path)
    await record_in(store, [envelope()])
    assert writers()
    await store.close()
    assert not writers()
    await (await open_sqlite(path)).close()


async def test_closing_twice_at_once_is_closing_once(path: Path) -> None:
    store = await open_sqlite(path)
    await asyncio.gather(store.close(), store.close())
    await store.close()
    assert not writers()
    assert find_holder(path) is None


async def test_the_lock_is_held_until_everything_queued_is_durable(
    faulty: SqliteStore, vfs: FaultyVfs, path: Path
) -> None:
    sync = vfs.block("sync", "wal")
    call = asyncio.ensure_future(record_in(faulty, [envelope("in commit")]))
    await asyncio.to_thread(sync.reached.wait, 10)
    closing = asyncio.ensure_future(faulty.close())
    await asyncio.sleep(0)
    with pytest.raises(Stopped):
        await record_in(faulty, [envelope("late")])
    with pytest.raises(LedgerInUse):
        await open_sqlite(path)
    sync.release()
    await closing
    assert len(await call) == 1


async def test_a_cancelled_close_can_be_repeated(
    faulty: SqliteStore, vfs: FaultyVfs, path: Path
) -> None:
    sync = vfs.block("sync", "wal")
    call = asyncio.ensure_future(record_in(faulty, [envelope()]))
    await asyncio.to_thread(sync.reached.wait, 10)
    closing = asyncio.ensure_future(faulty.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(LedgerInUse):
        await open_sqlite(path)
    sync.release()
    await faulty.close()
    await call
    await (await open_sqlite(path)).close()


async def test_a_broken_store_closes(faulty: SqliteStore, vfs: FaultyVfs, path: Path) -> None:
    vfs.fail("sync", "wal", io_error_on_sync)
    vfs.fail("open", "db", cannot_open, times=None)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope()])
    await asyncio.wait_for(faulty.close(), 5)
    await (await open_sqlite(path)).close()


async def test_operations_queued_before_the_close_are_committed_by_it(
    faulty: SqliteStore, vfs: FaultyVfs
) -> None:  # W5
    async with gathering(faulty, vfs):
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(20)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(faulty.close())
    await closing
    assert [len(receipts) for receipts in await asyncio.gather(*calls)] == [1] * 20


async def test_an_idle_writer_keeps_no_reference_to_its_last_batch(
    faulty: SqliteStore,
) -> None:  # F45
    class Operation:
        def __call__(self, connection: apsw.Connection) -> None: ...

    def submit() -> tuple[asyncio.Future[None], "weakref.ref[Operation]"]:
        operation = Operation()
        return faulty._writer.submit(operation), weakref.ref(operation)

    written, kept = submit()
    await written
    del written
    await until(lambda: gc.collect() >= 0 and kept() is None)  # the writer's thread drops it


async def test_a_url_advertised_after_the_close_is_ignored(path: Path) -> None:
    store = await open_sqlite(path)
    await store.close()
    store._lock.describe("http://127.0.0.1:1")
    assert find_holder(path) is None
    assert "127.0.0.1:1" not in lock_path(path).read_text()


async def test_a_start_that_was_cancelled_leaves_the_ledger_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, resume = threading.Event(), threading.Event()

    def slowly(*args: Any, **more: Any) -> Any:
        entered.set()
        resume.wait(10)
        return open_ledger(*args, **more)

    monkeypatch.setattr(store_module, "open_ledger", slowly)
    opening = asyncio.ensure_future(open_sqlite(path))
    await asyncio.to_thread(entered.wait, 10)
    opening.cancel()
    await asyncio.sleep(0)
    with pytest.raises(LedgerInUse):  # the opening thread still works on the file
        await open_sqlite(path)
    resume.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    monkeypatch.undo()
    store = await open_sqlite(path)
    await record_in(store, [envelope()])
    await store.close()


async def test_a_store_refuses_at_once_when_closed(path: Path) -> None:
    store = await open_sqlite(path)
    await store.close()
    for refused in (store.prove_writable(), store.cursor("feed"), record_in(store, [envelope()])):
        with pytest.raises(Unavailable):
            await refused
