"""Several operations in one transaction: each succeeds or fails alone, and resolves after
COMMIT."""

import asyncio
from collections.abc import Callable

import apsw
import pytest

from ackbox.errors import AckboxError, InvalidEvent, StoreError, Unavailable
from ackbox.model import ReceiptKind
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.telemetry import Committed
from support.faults.faulty_vfs import FaultyVfs, disk_full, io_error_on_read
from support.faults.gathering import gathering
from support.ledgers.backends import all_rows
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts, Fatal

INSERT = "INSERT OR %s INTO write_probe (only_row, probed_at) VALUES (2, 'x')"  # only_row must be 1


def constraint(connection: apsw.Connection) -> None:
    connection.execute(INSERT % "ABORT")


def python_error(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM events")
    raise ZeroDivisionError("of the test")


def or_rollback(connection: apsw.Connection) -> None:
    """Make SQLite roll back the whole transaction, in spite of the savepoint."""
    connection.execute(INSERT % "ROLLBACK")


def swallowed_rollback(connection: apsw.Connection) -> None:
    try:
        or_rollback(connection)
    except apsw.ConstraintError:
        return


def rollback(connection: apsw.Connection) -> None:
    connection.execute("ROLLBACK")


def rollback_and_begin(connection: apsw.Connection) -> None:
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")


def commit(connection: apsw.Connection) -> None:
    connection.execute("COMMIT")


def released(connection: apsw.Connection) -> None:
    connection.execute("RELEASE job")


BAD: list[Callable[[apsw.Connection], None]] = [
    constraint,
    python_error,
    or_rollback,
    swallowed_rollback,
    rollback,
    rollback_and_begin,
    commit,
    released,
]


async def keys(store: SqliteStore) -> list[str]:
    rows = await store._writer.submit(all_rows)
    return [row["idempotency_key"] for row in rows]


async def test_operations_queued_while_a_commit_syncs_share_the_next_one(
    faulty: SqliteStore, vfs: FaultyVfs, facts: Facts
) -> None:
    facts.clear()
    async with gathering(faulty, vfs):
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(30)]
    await asyncio.gather(*calls)
    await faulty.close()
    assert [fact.operations for fact in facts.of(Committed)] == [1, 1, 30]


async def test_no_caller_gets_a_result_before_the_commit_has_synced(
    faulty: SqliteStore, vfs: FaultyVfs
) -> None:  # promise 1
    sync = vfs.block("sync", "wal")
    call = asyncio.ensure_future(record_in(faulty, [envelope()]))
    await asyncio.to_thread(sync.reached.wait, 10)
    done, _ = await asyncio.wait([call], timeout=0.05)
    assert not done
    sync.release()
    assert (await call)[0].kind is ReceiptKind.NEW


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
async def test_a_failing_operation_leaves_the_others_committed(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal, bad: Callable[[apsw.Connection], None]
) -> None:  # F28
    async with gathering(faulty, vfs):
        before = [
            asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(3, prefix="a")
        ]
        failing = faulty._writer.submit(bad)
        after = [
            asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(3, prefix="b")
        ]
    results = await asyncio.gather(*before, *after)
    assert [receipts[0].kind for receipts in results] == [ReceiptKind.NEW] * 6
    (error,) = await asyncio.gather(failing, return_exceptions=True)
    assert isinstance(error, AckboxError) or bad is rollback_and_begin
    assert sorted(await keys(faulty)) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "held up"]
    assert (await record_in(faulty, [envelope("next")]))[0].kind is ReceiptKind.NEW
    assert fatal == []


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
async def test_a_failing_operation_alone_in_its_transaction_leaves_nothing(
    faulty: SqliteStore, fatal: Fatal, bad: Callable[[apsw.Connection], None]
) -> None:
    def operation(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO cursors VALUES ('bad', 'bad', 'bad')")
        bad(connection)

    (error,) = await asyncio.gather(faulty._writer.submit(operation), return_exceptions=True)
    assert isinstance(error, AckboxError) or bad is rollback_and_begin
    if bad is not commit:  # an operation that commits by itself keeps its rows
        assert await faulty.cursor("bad") is None
    assert (await record_in(faulty, [envelope("next")]))[0].kind is ReceiptKind.NEW
    assert fatal == []


async def test_an_error_of_a_driver_becomes_one_of_ours(faulty: SqliteStore) -> None:
    with pytest.raises(InvalidEvent, match="only_row"):
        await faulty._writer.submit(constraint)
    with pytest.raises(StoreError, match="no such table"):
        await faulty._writer.submit(lambda c: c.execute("SELECT * FROM absent"))
    with pytest.raises(StoreError, match="ZeroDivisionError"):
        await faulty._writer.submit(python_error)


async def test_a_commit_refused_for_all_is_tried_again_for_each(
    faulty: SqliteStore, vfs: FaultyVfs, facts: Facts
) -> None:  # F9
    # On the thread of the writer the commits of the opening are reported by now. They may not be
    # when `open_store` returns, because the writer reports a commit after it resolves the futures.
    await faulty._writer.submit(lambda _: facts.clear())
    async with gathering(faulty, vfs):
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(5)]
        vfs.fail("write", "wal", disk_full)
    assert [(await call)[0].kind for call in calls] == [ReceiptKind.NEW] * 5
    await faulty.close()
    clearing, gathered, each = [1], [1, 1], [1] * 5
    assert [fact.operations for fact in facts.of(Committed)] == clearing + gathered + each


async def test_a_read_error_in_one_operation_spares_the_others(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # L9
    await record_in(faulty, envelopes(500, prefix="old"))
    async with gathering(faulty, vfs):
        shrink = faulty._writer.submit(lambda c: c.pragma("shrink_memory"))
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(5)]
        await asyncio.sleep(0)
        vfs.fail("read", "any", io_error_on_read, skip=3)
    await shrink
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    assert len(failed) <= 1
    assert all(isinstance(error, Unavailable) for error in failed)
    assert len(await keys(faulty)) == 501 + 5 - len(failed)
    assert fatal == []


async def test_an_operation_alone_runs_outside_any_transaction(faulty: SqliteStore) -> None:
    assert (
        await faulty._writer.submit(lambda c: c.in_transaction, outside_transaction=True) is False
    )
    assert await faulty._writer.submit(lambda c: c.in_transaction) is True


@pytest.mark.parametrize("bad", [rollback, python_error, constraint, rollback_and_begin])
async def test_an_operation_alone_that_fails_leaves_no_transaction_open(
    faulty: SqliteStore, bad: Callable[[apsw.Connection], None]
) -> None:
    def operation(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        bad(connection)
        raise ZeroDivisionError

    with pytest.raises(AckboxError):
        await faulty._writer.submit(operation, outside_transaction=True)
    assert (await record_in(faulty, [envelope()]))[0].kind is ReceiptKind.NEW


async def test_callers_cancelled_in_mid_commit_leave_the_writer_ready(
    faulty: SqliteStore, vfs: FaultyVfs
) -> None:  # F27
    sync = vfs.block("sync", "wal")
    call = asyncio.ensure_future(record_in(faulty, [envelope("in commit")]))
    await asyncio.to_thread(sync.reached.wait, 10)
    queued = asyncio.ensure_future(record_in(faulty, [envelope("queued")]))
    await asyncio.sleep(0)
    for caller in (call, queued):
        caller.cancel()
    results = await asyncio.gather(call, queued, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    sync.release()
    assert (await record_in(faulty, [envelope("next")]))[0].kind is ReceiptKind.NEW
    assert (
        await faulty._writer.submit(lambda c: c.in_transaction, outside_transaction=True) is False
    )
    assert await keys(faulty) == ["in commit", "queued", "next"]


async def test_a_first_transaction_that_fails_after_its_insert_leaves_no_trace_of_the_key(
    faulty: SqliteStore, vfs: FaultyVfs
) -> None:  # F7
    vfs.fail("write", "wal", disk_full)
    with pytest.raises(Unavailable):
        await record_in(faulty, [envelope()])
    faulty.disk_space.check()
    again = envelope()
    receipts = await record_in(faulty, [again])
    assert (receipts[0].kind, receipts[0].id) == (ReceiptKind.NEW, again.id)
