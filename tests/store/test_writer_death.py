"""F29: the writer thread ends, and nobody waits for it."""

import asyncio
from typing import Any

import apsw
import pytest

from ackbox.errors import AckboxError, LedgerCorrupt, Stopped, Unavailable
from ackbox.stores.sqlite.store import SqliteStore
from support.backends import OpenStore
from support.events import envelope, envelopes
from support.facts import Fatal
from support.faulty_vfs import FaultyVfs
from support.gathering import gathering


def exit_thread(connection: apsw.Connection) -> None:
    raise SystemExit("of the test")


def find_corruption(connection: apsw.Connection) -> None:
    raise apsw.CorruptError("database disk image is malformed")


async def test_every_waiter_is_answered_within_a_second(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F29
    async with gathering(faulty, vfs):
        waiters: list[asyncio.Future[Any]] = [faulty._writer.submit(exit_thread)]
        waiters += [asyncio.ensure_future(faulty.record([one])) for one in envelopes(20)]
    answers = await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 1)
    assert [type(answer) for answer in answers] == [Stopped] * 21
    assert "of the test" in str(await fatal.wait())


async def test_who_comes_later_is_refused_at_once(faulty: SqliteStore, fatal: Fatal) -> None:
    with pytest.raises(Unavailable):
        await faulty._writer.submit(exit_thread)
    await fatal.wait()
    with pytest.raises(Unavailable, match="stopped"):
        await asyncio.wait_for(faulty.record([envelope()]), 1)
    assert faulty.unavailable_reason is not None


async def test_who_comes_while_it_dies_is_answered_too(faulty: SqliteStore) -> None:
    """Submitted after the look at whether the thread lives, queued after it has gone."""
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
        await faulty.record([envelope()])


async def test_neighbours_of_the_operation_that_met_corruption_are_answered(
    faulty: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F16
    async with gathering(faulty, vfs):
        bad = faulty._writer.submit(find_corruption)
        calls = [asyncio.ensure_future(faulty.record([one])) for one in envelopes(5)]
    answers = await asyncio.wait_for(asyncio.gather(bad, *calls, return_exceptions=True), 1)
    assert isinstance(answers[0], LedgerCorrupt)
    assert all(isinstance(answer, list | AckboxError) for answer in answers)
    assert isinstance(await fatal.wait(), LedgerCorrupt)


async def test_a_dead_store_closes_and_frees_its_lock(
    faulty: SqliteStore, fatal: Fatal, open_it: OpenStore
) -> None:
    with pytest.raises(Unavailable):
        await faulty._writer.submit(exit_thread)
    await faulty.close()
    again = await open_it()
    await again.record([envelope()])
