"""F9 and F10: a disk that is full or not writable, and the recovery from it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ackbox.errors import OutcomeUnknown, StorageFull, Unavailable
from ackbox.model import Envelope, ReceiptKind
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.sqlite.write.reserve import LOW_BYTES, RESERVE_BYTES
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.faults.faulty_vfs import FaultyVfs, disk_full, io_error_on_write
from support.faults.gathering import gathering
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts, Fatal

PLENTY = 1 << 40


class Disk:
    """A disk with as much free space as a test wants."""

    def __init__(self) -> None:
        self.free = PLENTY

    def free_bytes(self, folder: Path) -> int:
        return self.free


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def store(open_it: OpenStore, vfs: FaultyVfs, disk: Disk) -> AsyncIterator[SqliteStore]:
    yield await open_it(vfs=vfs.name, free_bytes=disk.free_bytes)
    vfs.heal()


@pytest.fixture
def reserve(path: Path) -> Path:
    return path.with_name(path.name + ".reserve")


def transitions(facts: Facts) -> list[str]:
    return [type(fact).__name__ for fact in facts.of(StoreFailed, StoreRecovered)]


async def test_a_disk_that_fills_up_refuses_new_events_before_sqlite_must(
    store: SqliteStore, vfs: FaultyVfs, disk: Disk, facts: Facts
) -> None:  # F9
    await record_in(store, [envelope("acked")])
    disk.free = LOW_BYTES - 1
    store.disk_space.check()
    written = vfs.calls["write", "wal"]
    with pytest.raises(StorageFull) as caught:
        await record_in(store, [envelope("refused")])
    assert caught.value.retry_after == 5
    assert store.unavailable_reason is not None
    assert "full" in store.unavailable_reason
    assert vfs.calls["write", "wal"] == written
    assert transitions(facts) == ["StoreFailed"]


# N10
async def test_the_refusal_says_what_is_free_and_both_limits(
    store: SqliteStore, disk: Disk, facts: Facts
) -> None:
    disk.free = LOW_BYTES - 1
    store.disk_space.check()
    disk.free = LOW_BYTES + 7 * 1024 * 1024
    store.disk_space.check()
    with pytest.raises(StorageFull) as caught:
        await record_in(store, [envelope("refused")])
    limits = "new events are refused below 16 MiB, and accepted again from 24 MiB on."
    assert str(caught.value) == f"The disk is nearly full, with 23 MiB free: {limits}"
    assert store.unavailable_reason == str(caught.value)
    (reported,) = facts.of(StoreFailed)
    assert reported == StoreFailed(f"The disk is nearly full, with 15 MiB free: {limits}")


async def test_everything_but_record_can_use_the_reserve(
    store: SqliteStore, disk: Disk, reserve: Path
) -> None:  # F9
    assert reserve.stat().st_size == RESERVE_BYTES
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES  # allocated, not a hole
    disk.free = LOW_BYTES - 1
    store.disk_space.check()
    assert not reserve.exists()
    await store.prove_writable()
    await store._writer.submit(lambda c: c.execute("DELETE FROM events").fetchall())


async def test_events_are_accepted_again_when_space_returns_and_the_reserve_is_refilled(
    store: SqliteStore, disk: Disk, reserve: Path, facts: Facts
) -> None:  # F9
    disk.free = 0
    store.disk_space.check()
    disk.free = LOW_BYTES + RESERVE_BYTES
    store.disk_space.check()
    assert store.unavailable_reason is None
    assert reserve.stat().st_size == RESERVE_BYTES
    assert (await record_in(store, [envelope()]))[0].kind is ReceiptKind.NEW
    assert transitions(facts) == ["StoreFailed", "StoreRecovered"]


async def test_space_gained_by_deleting_the_reserve_alone_is_no_recovery(
    store: SqliteStore, disk: Disk, reserve: Path, facts: Facts
) -> None:  # F9
    disk.free = LOW_BYTES - 1
    store.disk_space.check()
    disk.free += RESERVE_BYTES
    for _ in range(10):
        store.disk_space.check()
    assert store.unavailable_reason is not None
    assert not reserve.exists()
    assert transitions(facts) == ["StoreFailed"]


async def test_a_full_disk_reported_by_sqlite_refuses_this_batch_and_the_next(
    store: SqliteStore, vfs: FaultyVfs, disk: Disk, reserve: Path, facts: Facts, fatal: Fatal
) -> None:  # F9
    await record_in(store, [envelope("acked")])
    disk.free = 0
    full = vfs.fail("write", "wal", disk_full, times=None)
    with pytest.raises(StorageFull):
        await record_in(store, [envelope("sent")])
    hits = full.hits
    with pytest.raises(StorageFull):
        await record_in(store, [envelope("sent")])
    assert full.hits == hits
    assert not reserve.exists()
    store.disk_space.check()
    assert store.unavailable_reason is not None

    full.release()
    disk.free = PLENTY
    store.disk_space.check()
    assert store.unavailable_reason is None
    assert (await record_in(store, [envelope("sent")]))[0].kind is ReceiptKind.NEW
    assert (await record_in(store, [envelope("acked")]))[0].kind is ReceiptKind.DUPLICATE
    assert transitions(facts) == ["StoreFailed", "StoreRecovered"]
    assert fatal == []


async def test_a_disk_full_at_any_write_of_any_commit_loses_nothing_that_was_acknowledged(
    store: SqliteStore, vfs: FaultyVfs, fatal: Fatal
) -> None:  # F9
    chance = Random(9)
    acked: list[Envelope] = []
    for n in range(60):
        full = vfs.fail("write", "wal", disk_full, skip=chance.randrange(200), times=None)
        for k in range(3):
            batch = envelopes(chance.randrange(1, 40), prefix=f"{n}-{k}", size=300)
            with suppress(StorageFull):
                await record_in(store, batch)
                acked += batch
        full.release()
        store.disk_space.check()
    again = await record_in(store, [envelope(sent.idempotency_key, sent.payload) for sent in acked])
    assert {receipt.kind for receipt in again} == {ReceiptKind.DUPLICATE}
    assert [receipt.id for receipt in again] == [sent.id for sent in acked]
    assert len(acked) > 500
    assert fatal == []


async def test_a_full_disk_is_reported_once_however_many_wait(
    store: SqliteStore, vfs: FaultyVfs, disk: Disk, facts: Facts
) -> None:  # F9
    disk.free = 0
    async with gathering(store, vfs):
        calls = [asyncio.ensure_future(record_in(store, [sent])) for sent in envelopes(30)]
        vfs.fail("write", "wal", disk_full, times=None)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFull] * 30
    for _ in range(10):
        store.disk_space.check()
        with pytest.raises(StorageFull):
            await record_in(store, [envelope()])
    assert transitions(facts) == ["StoreFailed"]


async def test_small_writes_still_share_a_commit_that_a_large_one_overfilled(
    store: SqliteStore, vfs: FaultyVfs, disk: Disk
) -> None:  # F9
    disk.free = 0
    async with gathering(store, vfs):
        large = asyncio.ensure_future(record_in(store, envelopes(200, size=500)))
        small = asyncio.ensure_future(store.prove_writable())
        vfs.fail("write", "wal", disk_full, times=2)  # the shared commit, then the large one alone
    with pytest.raises(StorageFull):
        await large
    await small


async def test_a_checkpoint_on_a_full_disk_is_postponed_and_nothing_else_stops(
    open_it: OpenStore, vfs: FaultyVfs, disk: Disk, fatal: Fatal
) -> None:  # F9
    limits = Limits(checkpoint_pages=1)
    store = await open_it(vfs=vfs.name, free_bytes=disk.free_bytes, limits=limits)
    full = vfs.fail("write", "db", disk_full, times=None)
    for sent in envelopes(5):
        assert (await record_in(store, [sent]))[0].kind is ReceiptKind.NEW
    assert full.hits > 0
    full.release()
    await record_in(store, [envelope("after")])
    assert fatal == []


async def test_a_full_disk_with_free_space_does_not_flood_the_log(
    store: SqliteStore, vfs: FaultyVfs, facts: Facts
) -> None:
    """The cause is a quota, or a limit of the file system that `statvfs` does not count (F9)."""
    vfs.fail("write", "wal", disk_full, times=None)
    for _ in range(10):
        with pytest.raises(StorageFull):
            await record_in(store, [envelope()])
        with pytest.raises(StorageFull):
            await store.prove_writable()
        store.disk_space.check()
    assert transitions(facts) == ["StoreFailed"]
    vfs.heal()
    await store.prove_writable()
    store.disk_space.check()
    assert (await record_in(store, [envelope()]))[0].kind is ReceiptKind.NEW
    assert transitions(facts) == ["StoreFailed", "StoreRecovered"]


async def test_a_disk_full_at_start_opens_all_the_same_and_refuses_new_events(
    open_it: OpenStore, disk: Disk, reserve: Path, store: SqliteStore, facts: Facts
) -> None:  # F9: no crash loop
    await store.close()
    assert reserve.exists()
    disk.free = 0
    again: SqliteStore = await open_it(free_bytes=disk.free_bytes)
    assert not reserve.exists()
    with pytest.raises(StorageFull):
        await record_in(again, [envelope()])
    disk.free = PLENTY
    again.disk_space.check()
    assert (await record_in(again, [envelope()]))[0].kind is ReceiptKind.NEW


async def test_a_file_system_that_became_read_only_is_retried(
    open_it: OpenStore, vfs: FaultyVfs, disk: Disk, facts: Facts, fatal: Fatal
) -> None:  # F10
    """Linux fails writes to the open file, and opens the file read-only from then on."""
    limits = Limits(retry_seconds=0.0)
    store = await open_it(vfs=vfs.name, free_bytes=disk.free_bytes, limits=limits)
    await record_in(store, [envelope("acked")])
    vfs.opens_read_only = True
    vfs.fail("write", "any", io_error_on_write, times=None)
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("unknown")])
    for _ in range(5):
        with pytest.raises(Unavailable, match=r"read-?only"):
            await record_in(store, [envelope("refused")])
        assert store.unavailable_reason is not None
    vfs.heal()
    assert (await record_in(store, [envelope("after")]))[0].kind is ReceiptKind.NEW
    assert (await record_in(store, [envelope("acked")]))[0].kind is ReceiptKind.DUPLICATE
    assert store.unavailable_reason is None
    assert transitions(facts) == ["StoreFailed", "StoreRecovered"]
    assert fatal == []
