"""`Operations.backup`: a consistent copy, made while events keep coming (W12)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.errors import AckboxError, OutcomeUnknown, StoreError, Unavailable
from ackbox.model import BackupProgress, ReceiptKind
from ackbox.stores.sqlite.admin import backup as backup_module
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.names import SIDE_SUFFIXES
from ackbox.stores.sqlite.store import SqliteStore
from support.faults.faulty_vfs import FaultyVfs, io_error_on_sync
from support.ledgers.backends import OpenStore, all_rows, open_sqlite
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Fatal

SMALL_STEPS = Limits(backup_pages=8)


@pytest.fixture
async def store(open_it: OpenStore) -> SqliteStore:
    opened = await open_it(durability="normal", limits=SMALL_STEPS)
    await record_in(opened, envelopes(2000, prefix="before", size=300))
    return opened


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "copy.db"


async def copy(store: SqliteStore, target: Path) -> int:
    return len([progress async for progress in store.backup(target)])


async def rest(steps: AsyncIterator[BackupProgress]) -> None:
    async for _ in steps:
        pass


def keys(path: Path) -> set[str]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        assert connection.pragma("integrity_check") == "ok"
        rows = all_rows(connection)
        count = connection.execute("SELECT events FROM status_counts WHERE status = 'pending'").get
        assert count == len(rows)
        return {row["idempotency_key"] for row in rows}


async def test_a_copy_made_while_writing_holds_all_that_was_acknowledged_before_it_ended(
    store: SqliteStore, target: Path
) -> None:  # W12
    acked: set[str] = set()
    ended = asyncio.Event()

    async def send() -> None:
        n = 0
        while not ended.is_set():
            n += 1
            await record_in(store, envelopes(5, prefix=f"meanwhile-{n}", size=300))
            acked.update(f"meanwhile-{n}-{k}" for k in range(5))

    sending = asyncio.ensure_future(send())
    steps = 0
    before_the_end: set[str] = set()
    async for progress in store.backup(target):
        steps += 1
        assert 0 <= progress.copied_pages <= progress.total_pages
        before_the_end = set(acked)
    ended.set()
    await sending
    assert steps > 10
    assert before_the_end
    copied = keys(target)
    assert copied >= {f"before-{n}" for n in range(2000)}
    assert copied >= before_the_end


async def test_a_copy_is_a_ledger_that_opens_and_takes_events(
    store: SqliteStore, target: Path
) -> None:
    await copy(store, target)
    copied = await open_sqlite(target)
    assert (await record_in(copied, [envelope("before-7", b"other")]))[
        0
    ].kind is ReceiptKind.CONFLICT
    assert (await record_in(copied, [envelope("new")]))[0].kind is ReceiptKind.NEW
    await copied.close()


async def test_a_copy_is_one_file_readable_by_its_owner_only(
    store: SqliteStore, target: Path
) -> None:
    await copy(store, target)
    (only,) = target.parent.iterdir()
    assert only == target
    assert target.stat().st_mode & 0o777 == 0o600


async def test_a_target_that_exists_is_refused_and_left_as_it_is(
    store: SqliteStore, target: Path
) -> None:
    target.write_bytes(b"precious")
    with pytest.raises(StoreError, match="exists"):
        await copy(store, target)
    assert target.read_bytes() == b"precious"
    assert list(target.parent.iterdir()) == [target]


async def test_the_ledger_itself_is_no_target(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreError):
        await copy(store, path)
    await record_in(store, [envelope("after")])


async def test_a_folder_that_does_not_exist_is_named(store: SqliteStore, target: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        await copy(store, target.parent / "nowhere" / "copy.db")
    await record_in(store, [envelope("after")])


def full(*_: Any) -> None:
    raise apsw.FullError("injected: no room on the disk")


def corrupt(*_: Any) -> None:
    raise apsw.CorruptError("injected: database disk image is malformed")


@pytest.mark.parametrize("error", [full, corrupt])
async def test_a_copy_that_fails_leaves_no_file_and_no_trace_in_the_store(
    store: SqliteStore, target: Path, fatal: Fatal, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    """An error of the disk with the copy does not affect the ledger."""

    class Failing:
        done = False
        step = error

        def close(self, force: bool) -> None: ...

    monkeypatch.setattr(backup_module._Copy, "_begin", lambda self, source, fd: Failing())
    with pytest.raises(StoreError):
        await copy(store, target)
    assert list(target.parent.iterdir()) == []
    assert (await record_in(store, [envelope("after")]))[0].kind is ReceiptKind.NEW
    assert store.unavailable_reason is None
    assert fatal == []


async def test_a_copy_that_turns_out_damaged_is_removed(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = backup_module._Copy.finish

    def damage(self: Any, *more: Any) -> None:
        finish(self, *more)
        content = bytearray(self._draft.read_bytes())
        middle = len(content) // 4096 // 2 * 4096
        content[middle : middle + 1024] = b"\xff" * 1024
        self._draft.write_bytes(content)

    monkeypatch.setattr(backup_module._Copy, "finish", damage)
    with pytest.raises(StoreError, match="copy"):
        await copy(store, target)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("after_steps", [0, 1, 5])
async def test_a_cancelled_copy_leaves_no_file_and_the_writer_goes_on(
    store: SqliteStore, target: Path, after_steps: int
) -> None:
    reached = asyncio.Event()

    async def count_steps() -> None:
        steps = 0
        if not after_steps:
            reached.set()
        async for _ in store.backup(target):
            steps += 1
            if steps >= after_steps:
                reached.set()

    copying = asyncio.ensure_future(count_steps())
    await reached.wait()
    await asyncio.sleep(0)
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    await record_in(store, [envelope("after")])
    assert list(target.parent.iterdir()) == []


async def test_two_copies_to_one_target_never_make_half_a_file(
    store: SqliteStore, target: Path
) -> None:
    results = await asyncio.gather(copy(store, target), copy(store, target), return_exceptions=True)
    assert all(isinstance(result, int | StoreError) for result in results), results
    assert any(isinstance(result, int) for result in results)
    assert list(target.parent.iterdir()) == [target]
    assert len(keys(target)) == 2000


async def test_a_draft_left_by_a_crash_does_not_stop_the_next_copy(
    store: SqliteStore, target: Path
) -> None:
    target.with_name(target.name + ".part").write_bytes(b"half a copy")
    await copy(store, target)
    assert list(target.parent.iterdir()) == [target]


def link_to_the_ledger(draft: Path, ledger: Path) -> None:
    draft.symlink_to(ledger)


def second_name_of_the_ledger(draft: Path, ledger: Path) -> None:
    draft.hardlink_to(ledger)


def link_to_nothing(draft: Path, ledger: Path) -> None:
    draft.symlink_to(ledger.with_name("not-there-yet"))


def pipe(draft: Path, ledger: Path) -> None:
    os.mkfifo(draft)


@pytest.mark.parametrize(
    "attack", [link_to_the_ledger, second_name_of_the_ledger, link_to_nothing, pipe]
)
async def test_a_file_that_is_not_our_draft_is_neither_followed_nor_removed(
    store: SqliteStore, path: Path, target: Path, attack: Callable[[Path, Path], None]
) -> None:  # S1
    draft = target.with_name(target.name + ".part")
    attack(draft, path)
    before = path.stat().st_size, sorted(path.parent.iterdir())
    with pytest.raises(StoreError, match=r"copy\.db\.part exists and is not"):
        await copy(store, target)
    assert (path.stat().st_size, sorted(path.parent.iterdir())) == before
    assert list(target.parent.iterdir()) == [draft]
    draft.unlink()
    assert await record_in(store, [envelope("after")])


@pytest.mark.parametrize("suffix", ["", *SIDE_SUFFIXES])
async def test_no_name_of_the_ledger_is_a_target(
    store: SqliteStore, path: Path, tmp_path: Path, suffix: str
) -> None:  # S1
    (tmp_path / "link").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(StoreError, match="is a name of the ledger itself"):
            await copy(store, folder / (path.name + suffix))
    assert sorted(tmp_path.iterdir()) == before


async def test_a_draft_under_a_name_of_the_ledger_is_refused(tmp_path: Path) -> None:  # S1
    store = await open_sqlite(tmp_path / "copy.db.part")
    with pytest.raises(StoreError, match="is a name of the ledger itself"):
        await copy(store, tmp_path / "copy.db")
    await store.close()


async def test_a_link_to_nothing_is_no_free_target(store: SqliteStore, target: Path) -> None:  # S1
    target.symlink_to(target.with_name("elsewhere"))
    with pytest.raises(StoreError, match="exists already"):
        await copy(store, target)


async def test_a_file_that_appears_during_the_copy_keeps_its_name(
    store: SqliteStore, target: Path
) -> None:  # S1
    steps = aiter(store.backup(target))
    await anext(steps)
    target.write_text("mine")
    with pytest.raises(StoreError, match="File exists"):
        await rest(steps)
    assert list(target.parent.iterdir()) == [target]
    assert target.read_text() == "mine"


async def test_a_store_closed_in_mid_copy_leaves_no_file(store: SqliteStore, target: Path) -> None:
    steps = aiter(store.backup(target))
    await anext(steps)
    await store.close()
    with pytest.raises(AckboxError):
        await rest(steps)
    assert list(target.parent.iterdir()) == []


async def test_a_store_that_breaks_in_mid_copy_fails_the_copy_and_recovers(
    open_it: OpenStore, vfs: FaultyVfs, target: Path, fatal: Fatal
) -> None:  # F8
    store = await open_it(vfs=vfs.name, limits=SMALL_STEPS)
    await record_in(store, envelopes(1000, size=300))
    steps = aiter(store.backup(target))
    await anext(steps)
    vfs.fail("sync", "wal", io_error_on_sync)
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("unknown")])
    with pytest.raises((StoreError, Unavailable)):
        await rest(steps)
    assert list(target.parent.iterdir()) == []
    assert (await record_in(store, [envelope("after")]))[0].kind is ReceiptKind.NEW
    assert fatal == []


async def test_events_are_acknowledged_while_a_copy_is_verified(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a large copy back takes minutes, and no event waits for it."""
    verify = backup_module._Copy.verify
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def slowly(self: Any) -> None:
        asyncio.run_coroutine_threadsafe(record_in(store, [envelope("meanwhile")]), loop).result(10)
        order.append("acknowledged")
        verify(self)
        order.append("verified")

    monkeypatch.setattr(backup_module._Copy, "verify", slowly)
    await copy(store, target)
    assert order == ["acknowledged", "verified"]


async def test_the_folder_is_synced_off_the_event_loop(
    store: SqliteStore, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []

    def note(folder: Path) -> None:
        synced.append((folder, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(backup_module, "sync_folder", note)
    async for _ in store.backup(target):
        pass
    assert synced == [(target.parent, False)]
