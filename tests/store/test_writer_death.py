"""F29: when the writer thread ends, no caller waits for ever."""

import asyncio
from typing import Any

import apsw
import pytest

from ackbox.errors import AckboxError, LedgerCorrupt, OutcomeUnknown, Stopped, Unavailable
from ackbox.stores.sqlite.store import SqliteStore
from support.faults.faulty_vfs import FaultyVfs
from support.faults.gathering import gathering
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Fatal


def exit_thread(connection: apsw.Connection) -> None:
    raise SystemExit("of the test")


def find_corruption(connection: apsw.Connection) -> None:
    raise apsw.CorruptError("database disk image is malformed")


async def test_every_waiter_fails_within_a_second(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F29
    async with gathering(faulty, vfs):
        waiters: list[asyncio.Future[Any]] = [faulty._writer.submit(exit_thread)]
        waiters += [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(20)]
    results = await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 1)
    assert [type(result) for result in results] == [Stopped] * 21
    assert "of the test" in str(await fatal.wait())


async def test_a_writer_that_dies_after_its_commit_leaves_the_outcome_unknown(
    faulty: SqliteStore, fatal: Fatal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("of the test")

    monkeypatch.setattr(faulty._writer._files, "compare", fail)
    with pytest.raises(OutcomeUnknown, match="of the test"):
        await record_in(faulty, [envelope()])
    await fatal.wait()


async def test_a_later_caller_is_refused_at_once(faulty: SqliteStore, fatal: Fatal) -> None:
    with pytest.raises(Unavailable):
        await faulty._writer.submit(exit_thread)
    await fatal.wait()
    with pytest.raises(Unavailable, match="stopped"):
        await asyncio.wait_for(record_in(faulty, [envelope()]), 1)
    assert faulty.unavailable_reason is not None


async def test_a_caller_during_the_death_of_the_writer_fails_too(faulty: SqliteStore) -> None:
    """The caller sees the thread alive, but its job is queued after the thread has ended."""
    queue = faulty._writer._jobs
    killer = faulty._writer.submit(exit_thread)

    class QueuesLate:
        def put(self, job: Any) -> None:
            faulty._writer._thread.join()
            queue.put(job)

        def __getattr__(self, name: str) -> Any:
            return getattr(queue, name)

    faulty._writer._jobs = QueuesLate()  # type: ignore[assignment]
    faulty._writer._dead = None
    late = faulty._writer.submit(lambda c: None)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(late, 1)
    with pytest.raises(Unavailable):
        await killer


async def test_corruption_met_at_run_time_is_fatal(faulty: SqliteStore, fatal: Fatal) -> None:
    with pytest.raises(LedgerCorrupt, match="recover"):  # F16
        await faulty._writer.submit(find_corruption)
    assert isinstance(await fatal.wait(), LedgerCorrupt)
    with pytest.raises(Unavailable):
        await record_in(faulty, [envelope()])


async def test_operations_beside_one_that_met_corruption_do_not_hang(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F16
    async with gathering(faulty, vfs):
        bad = faulty._writer.submit(find_corruption)
        calls = [asyncio.ensure_future(record_in(faulty, [sent])) for sent in envelopes(5)]
    results = await asyncio.wait_for(asyncio.gather(bad, *calls, return_exceptions=True), 1)
    assert isinstance(results[0], LedgerCorrupt)
    assert all(isinstance(result, list | AckboxError) for result in results)
    assert isinstance(await fatal.wait(), LedgerCorrupt)


async def test_a_dead_store_closes_and_frees_its_lock(
    faulty: SqliteStore, fatal: Fatal, open_it: OpenStore
) -> None:
    with pytest.raises(Unavailable):
        await faulty._writer.submit(exit_thread)
    await faulty.close()
    again = await open_it()
    await record_in(again, [envelope()])
