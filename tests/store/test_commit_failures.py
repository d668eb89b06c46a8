"""F8: COMMIT itself fails, and the contents of the disk are unknown."""

import asyncio
from pathlib import Path

import apsw
import pytest

from ackbox.errors import OutcomeUnknown, Unavailable
from ackbox.model import ReceiptKind
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.faults.faulty_vfs import (
    FaultyVfs,
    MakeError,
    Operation,
    cannot_open,
    io_error_on_read,
    io_error_on_sync,
    io_error_on_write,
)
from support.faults.gathering import gathering
from support.ledgers.backends import OpenStore, all_rows
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts, Fatal
from support.servers.processes import HOLDS_A_WRITE, open_files, process


async def keys(store: SqliteStore) -> set[str]:
    rows = await store._writer.submit(all_rows)
    return {row["idempotency_key"] for row in rows}


@pytest.mark.parametrize(
    ("operation", "error"), [("sync", io_error_on_sync), ("write", io_error_on_write)]
)
async def test_an_io_error_of_commit_leaves_every_waiter_of_the_batch_without_an_ack(
    faulty: SqliteStore, vfs: FaultyVfs, operation: Operation, error: MakeError
) -> None:  # F8
    await record_in(faulty, envelopes(5, prefix="acked"))
    async with gathering(faulty, vfs):
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(20)]
        vfs.fail(operation, "wal", error)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknown] * 20
    assert faulty.unavailable_reason is not None


async def test_the_store_is_reopened_and_proven_before_the_next_commit(
    faulty: SqliteStore, vfs: FaultyVfs, facts: Facts, fatal: Fatal
) -> None:  # F8
    acked = await record_in(faulty, envelopes(5, prefix="acked"))
    opened = vfs.calls["open", "db"]
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope("unknown")])
    assert faulty.unavailable_reason is not None

    assert (await record_in(faulty, [envelope("after")]))[0].kind is ReceiptKind.NEW
    assert vfs.calls["open", "db"] == opened + 1
    assert faulty.unavailable_reason is None
    assert [type(fact) for fact in facts.of(StoreFailed, StoreRecovered)] == [
        StoreFailed,
        StoreRecovered,
    ]
    assert len(acked) == 5
    assert await keys(faulty) >= {*(f"acked-{n}" for n in range(5)), "after"}
    assert fatal == []


async def test_a_retry_after_an_unknown_outcome_is_one_row_and_new(
    faulty: SqliteStore, vfs: FaultyVfs
) -> None:  # F7, F8
    sent = envelope("unknown")
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [sent])
    assert (await record_in(faulty, [sent]))[0].kind is ReceiptKind.NEW
    rows = await faulty._writer.submit(all_rows)
    assert [(row["id"], row["ingest_count"]) for row in rows] == [(sent.id, 1)]


async def test_a_broken_store_reopens_while_no_event_comes(
    open_it: OpenStore, vfs: FaultyVfs
) -> None:  # F8
    faulty = await open_it(vfs=vfs.name, limits=Limits(retry_seconds=0.001))
    recovered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note(fact: object) -> None:
        if isinstance(fact, StoreRecovered):
            loop.call_soon_threadsafe(recovered.set)

    faulty._writer._observe = note
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope()])
    await asyncio.wait_for(recovered.wait(), 5)
    assert faulty.unavailable_reason is None


async def test_a_second_failure_within_a_minute_is_fatal_and_fails_every_waiter(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F8
    await record_in(faulty, envelopes(3, prefix="acked"))
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope("first failure")])
    await record_in(faulty, [envelope("recovered")])
    async with gathering(faulty, vfs):
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(10)]
        vfs.fail("sync", "wal", io_error_on_sync)
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 1)
    assert [type(result) for result in results] == [OutcomeUnknown] * 10
    assert isinstance(await fatal.wait(), OutcomeUnknown)
    with pytest.raises(Unavailable):
        await record_in(faulty, [envelope("later")])


async def test_a_failing_test_write_is_the_second_failure(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F8
    vfs.fail("sync", "wal", io_error_on_sync, times=None)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope()])
    with pytest.raises(Unavailable):
        await asyncio.wait_for(record_in(faulty, [envelope()]), 1)
    assert "test write failed: injected" in str(await fatal.wait())


async def test_a_second_failure_after_a_minute_is_recovered_from_again(
    open_it: OpenStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F8
    now = 600.0
    faulty = await open_it(vfs=vfs.name, monotonic=lambda: now)
    for _ in range(2):
        now += 120.0
        vfs.fail("sync", "wal", io_error_on_sync)
        with pytest.raises(OutcomeUnknown):
            await record_in(faulty, [envelope()])
        await record_in(faulty, [envelope()])
    assert fatal == []


async def test_rows_acknowledged_before_the_failure_survive_a_restart(
    faulty: SqliteStore, vfs: FaultyVfs, path: Path
) -> None:  # F8
    await record_in(faulty, envelopes(50, prefix="acked"))
    vfs.fail("sync", "wal", io_error_on_sync, times=None)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope("unknown")])
    with pytest.raises(Unavailable):
        await record_in(faulty, [envelope("dead")])
    vfs.heal()
    await faulty.close()
    with apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        stored = {row["idempotency_key"] for row in all_rows(connection)}
        assert stored >= {f"acked-{n}" for n in range(50)}
        assert connection.pragma("integrity_check") == "ok"


async def test_a_reader_goes_on_while_the_store_is_broken_and_after(
    faulty: SqliteStore, vfs: FaultyVfs, path: Path
) -> None:  # F8
    reader = SqliteReader(path)
    sent = envelope("acked")
    await record_in(faulty, [sent])
    assert await reader.event(sent.id) is not None
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope("unknown")])
    assert await reader.event(sent.id) is not None
    after = envelope("after")
    await record_in(faulty, [after])
    assert await reader.event(after.id) is not None
    await reader.close()


async def test_a_reopen_leaks_no_file(faulty: SqliteStore, vfs: FaultyVfs, path: Path) -> None:
    await record_in(faulty, [envelope()])
    before = open_files(path.parent)
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope()])
    await record_in(faulty, [envelope()])
    assert open_files(path.parent) == before


async def test_a_file_that_cannot_be_reopened_is_tried_again_and_is_not_fatal(
    open_it: OpenStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F10
    faulty = await open_it(vfs=vfs.name, limits=Limits(retry_seconds=0.0))
    vfs.fail("sync", "wal", io_error_on_sync)
    opening = vfs.fail("open", "db", cannot_open, times=None)
    with pytest.raises(OutcomeUnknown):
        await record_in(faulty, [envelope()])
    with pytest.raises(Unavailable, match="reopened"):
        await record_in(faulty, [envelope()])
    assert faulty.unavailable_reason is not None
    opening.release()
    assert (await record_in(faulty, [envelope()]))[0].kind is ReceiptKind.NEW
    assert faulty.unavailable_reason is None
    assert fatal == []


async def test_an_io_error_before_commit_keeps_nothing_and_a_retry_works(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F7, L9
    await record_in(faulty, envelopes(500, prefix="acked"))
    await faulty._writer.submit(lambda c: c.pragma("shrink_memory"), outside_transaction=True)
    read = vfs.fail("read", "any", io_error_on_read, skip=2)
    sent = envelope("sent")
    with pytest.raises(Unavailable) as caught:
        await record_in(faulty, [sent])
    assert read.hits == 1
    assert not isinstance(caught.value, OutcomeUnknown)
    assert (await record_in(faulty, [sent]))[0].kind is ReceiptKind.NEW
    assert faulty.unavailable_reason is None
    assert fatal == []


async def test_a_write_lock_of_another_process_is_transient(
    open_it: OpenStore, path: Path, fatal: Fatal
) -> None:  # L9: such as an operator's shell
    store = await open_it(limits=Limits(busy_milliseconds=20))
    with process(HOLDS_A_WRITE, path):
        with pytest.raises(Unavailable, match="lock") as caught:
            await record_in(store, [envelope()])
        assert not isinstance(caught.value, OutcomeUnknown)
    assert (await record_in(store, [envelope()]))[0].kind is ReceiptKind.NEW
    assert fatal == []


async def test_an_io_error_of_a_checkpoint_is_recovered_from_like_one_of_commit(
    open_it: OpenStore, vfs: FaultyVfs, facts: Facts, fatal: Fatal
) -> None:
    faulty = await open_it(vfs=vfs.name, limits=Limits(checkpoint_pages=1))
    vfs.fail("write", "db", io_error_on_write)
    assert (await record_in(faulty, [envelope("acked")]))[0].kind is ReceiptKind.NEW
    assert (await record_in(faulty, [envelope("after")]))[0].kind is ReceiptKind.NEW
    assert [type(fact) for fact in facts.of(StoreFailed, StoreRecovered)] == [
        StoreFailed,
        StoreRecovered,
    ]
    assert await keys(faulty) == {"acked", "after"}
    assert fatal == []
