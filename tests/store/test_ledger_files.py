"""The files of the ledger are compared with the opened ones before anything is acknowledged."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from ackbox.errors import LedgerCorrupt, LedgerInUse, OutcomeUnknown, Unavailable
from ackbox.model import EventFilter, Order
from ackbox.stores.sqlite import shared_locks
from ackbox.stores.sqlite.lock import LedgerLock, lock_path, read_holder
from ackbox.stores.sqlite.names import beside
from ackbox.stores.sqlite.write.retention import reclaim_space
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, envelopes, noon, record_in
from support.ledgers.facts import Facts, Fatal
from support.time.polling import until

_WRITE_ELSEWHERE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE theirs (id)")
connection.commit()
connection.execute("PRAGMA wal_checkpoint")
connection.close()
"""


def keys(path: Path) -> set[str]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        rows = connection.execute("SELECT idempotency_key FROM events").fetchall()
    return {str(key) for (key,) in rows}


def in_files(path: Path, folder: Path) -> set[str]:
    """Return the keys that a start after a power cut would find, from a copy of the files."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        if beside(path, suffix).exists():
            (folder / (path.name + suffix)).write_bytes(beside(path, suffix).read_bytes())
    return keys(folder / path.name)


def delete_log(path: Path) -> None:
    beside(path, "-wal").unlink()


def replace_log(path: Path) -> None:
    beside(path, "-wal").unlink()
    beside(path, "-wal").touch()


def delete_log_and_index(path: Path) -> None:
    """Do what the close of another SQLite library does."""
    beside(path, "-wal").unlink()
    beside(path, "-shm").unlink()


def touch(path: Path) -> None:
    os.utime(path)


def write_elsewhere(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _WRITE_ELSEWHERE, str(path)], check=True)


def remove_lock(path: Path) -> None:
    lock_path(path).unlink()


RECOVERABLE = [delete_log, replace_log, delete_log_and_index, touch, write_elsewhere, remove_lock]


@pytest.mark.parametrize("change", RECOVERABLE)
async def test_a_change_is_noticed_before_the_acknowledgement_and_recovered_from(
    open_it: OpenStore, path: Path, tmp_path: Path, facts: Facts, change: Callable[[Path], None]
) -> None:  # N1, F54, S12
    store = await open_it()
    reader = store.reader
    await record_in(store, [envelope("before")])
    assert (await reader.stats(noon())).pending == 1
    change(path)
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("unknown")])
    await record_in(store, [envelope("after")])
    assert in_files(path, tmp_path / "copy") == {"before", "unknown", "after"}
    assert (await reader.stats(noon())).pending == 3
    assert store.unavailable_reason is None
    assert [len(facts.of(StoreFailed)), len(facts.of(StoreRecovered))] == [1, 1]
    await reader.close()


@pytest.mark.parametrize("change", RECOVERABLE)
async def test_a_change_is_recovered_from_while_nothing_is_written(
    open_it: OpenStore, path: Path, tmp_path: Path, facts: Facts, change: Callable[[Path], None]
) -> None:  # N1, F54, S12
    store = await open_it()
    await record_in(store, [envelope("before")])
    change(path)
    store.disk_space.check()
    await until(lambda: bool(facts.of(StoreRecovered)))
    assert in_files(path, tmp_path / "copy") == {"before"}
    await record_in(store, [envelope("after")])


# N1
async def test_a_reopen_waits_for_a_read_that_runs(
    open_it: OpenStore, path: Path, facts: Facts
) -> None:
    store = await open_it()
    reader = store.reader
    await record_in(store, envelopes(3))
    await reader.stats(noon())
    delete_log_and_index(path)
    with reader.connections.use() as connection:
        read = connection.execute("SELECT idempotency_key FROM events")
        first = next(iter(read))
        with pytest.raises(OutcomeUnknown):  # the caller does not wait for the reader
            await record_in(store, [envelope("unknown")])
        assert not facts.of(StoreRecovered)
        assert len([first, *read]) == 3
    await record_in(store, [envelope("after")])
    page = await reader.events(EventFilter(), order=Order.NEWEST, limit=10)
    assert len(page.items) == 5
    await reader.close()


# N1
async def test_readers_are_closed_while_a_reopen_is_tried_again(
    open_it: OpenStore, path: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_it()
    reader = store.reader
    await record_in(store, envelopes(3))
    reconnect = store._writer._reconnect
    closed: list[bool] = []

    def fail_once() -> apsw.Connection:
        closed.append(reader.connections._idle.empty())
        if len(closed) == 1:
            raise apsw.CantOpenError("no file descriptor is left")
        return reconnect()

    monkeypatch.setattr(store._writer, "_reconnect", fail_once)
    delete_log_and_index(path)
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("unknown")])
    await until(lambda: bool(facts.of(StoreRecovered)))
    assert closed == [True, True]
    assert (await reader.stats(noon())).pending == 4
    await reader.close()


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("cut", [cut_to_nothing, cut_in_half])
async def test_a_truncated_ledger_ends_the_writer_and_its_log_is_kept(
    open_it: OpenStore, path: Path, fatal: Fatal, cut: Callable[[Path], None]
) -> None:  # S1, F54
    store = await open_it()
    await record_in(store, [envelope("before")])
    cut(path)
    size = path.stat().st_size
    with pytest.raises(OutcomeUnknown, match="truncated"):
        await record_in(store, [envelope("unknown")])
    await until(lambda: bool(fatal))
    assert isinstance(fatal[0], LedgerCorrupt)
    await store.close()
    assert path.stat().st_size == size
    assert b"before" in beside(path, "-wal").read_bytes()


# F54
async def test_a_ledger_overwritten_in_place_ends_the_writer(
    open_it: OpenStore, path: Path, fatal: Fatal
) -> None:
    store = await open_it()
    await record_in(store, envelopes(50, size=3000))
    await store._writer.submit(lambda c: c.wal_checkpoint(), outside_transaction=True)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("unknown")])
    await until(lambda: bool(fatal))
    assert isinstance(fatal[0], LedgerCorrupt)


# S12
async def test_a_removed_lock_file_is_created_again_and_names_its_holder(
    open_it: OpenStore, path: Path
) -> None:
    store = await open_it()
    store._lock.describe("http://127.0.0.1:8000")
    await record_in(store, [envelope("first")])  # the check at the start is over
    remove_lock(path)
    with pytest.raises(OutcomeUnknown, match="lock file"):
        await record_in(store, [envelope("a")])
    await record_in(store, [envelope("b")])
    holder = read_holder(path)
    assert holder is not None
    assert (holder.pid, holder.url) == (os.getpid(), "http://127.0.0.1:8000")
    with pytest.raises(LedgerInUse):
        LedgerLock(path)


# S12
async def test_the_server_that_lost_its_lock_to_another_ends(
    open_it: OpenStore, path: Path, fatal: Fatal
) -> None:
    store = await open_it()
    await record_in(store, [envelope("first")])  # the check at the start is over
    remove_lock(path)
    other = LedgerLock(path)
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("a")])
    await until(lambda: bool(fatal))
    assert isinstance(fatal[0], LedgerInUse)
    other.release()


# N1
async def test_our_own_checkpoints_and_copies_are_no_change(
    open_it: OpenStore, path: Path, tmp_path: Path, facts: Facts
) -> None:
    store = await open_it(durability="normal")
    reader = store.reader
    sizes = set()
    for number in range(30):
        await record_in(store, envelopes(100, prefix=f"{number}", size=2000))
        await reader.stats(noon())
        sizes.add(path.stat().st_size)
    await store._writer.submit(lambda c: c.execute("DELETE FROM events").get)
    while await store._writer.run(reclaim_space):
        pass
    async for _ in store.backup(tmp_path / "copy.db"):
        await store.prove_writable()
    await reader.close()
    await record_in(store, [envelope("after")])
    assert len(sizes) > 3
    assert not facts.of(StoreFailed)


# N1
async def test_a_log_that_cannot_be_copied_back_ends_the_writer(
    open_it: OpenStore, path: Path, fatal: Fatal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_locks, "_set_lock", lambda fd, kind, where: None)
    store = await open_it()
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as reading:
        reading.execute("BEGIN")
        assert reading.execute("SELECT count(*) FROM events").get == 0
        await record_in(store, [envelope("behind the reader")])
        delete_log(path)
        with pytest.raises(OutcomeUnknown):
            await record_in(store, [envelope("unknown")])
        await until(lambda: bool(fatal))
    assert "could not be copied into the ledger" in str(fatal[0])


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_log_that_was_cut_is_noticed_before_the_next_acknowledgement(
    open_it: OpenStore, path: Path, fatal: Fatal, is_wrapped: bool
) -> None:  # N1, F54
    store = await open_it()
    await record_in(store, envelopes(300))
    if is_wrapped:  # the log restarts in a file that keeps its length
        await store._writer.submit(restart_log, outside_transaction=True)
        store._writer._files.note_checkpoint()
        await record_in(store, [envelope("wrapped")])
    os.truncate(beside(path, "-wal"), 0)
    with pytest.raises(OutcomeUnknown, match="log of the ledger was truncated"):
        await record_in(store, [envelope("not kept")])
    assert isinstance(await fatal.wait(), LedgerCorrupt)


def restart_log(connection: apsw.Connection) -> None:
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)


_EMPTY_THE_LOG = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
connection.close()
"""


def empty_log_elsewhere(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _EMPTY_THE_LOG, str(path)], check=True)


async def test_a_log_that_another_process_emptied_is_no_loss(
    open_it: OpenStore, path: Path, tmp_path: Path
) -> None:  # N1
    store = await open_it()
    await record_in(store, envelopes(300, prefix="before"))
    empty_log_elsewhere(path)
    assert beside(path, "-wal").stat().st_size == 0
    with suppress(OutcomeUnknown):  # its checkpoint wrote to the ledger, which is opened again
        await record_in(store, [envelope("during")])
    await record_in(store, [envelope("after")])
    assert in_files(path, tmp_path / "copy") >= {"before-0", "before-299", "after"}


async def test_a_ledger_that_was_moved_and_linked_to_is_moved(
    open_it: OpenStore, path: Path, tmp_path: Path
) -> None:  # N1, F54
    store = await open_it()
    await record_in(store, [envelope("before")])
    (tmp_path / "larger").mkdir()
    path.rename(tmp_path / "larger" / path.name)
    path.symlink_to(tmp_path / "larger" / path.name)
    with pytest.raises(OutcomeUnknown, match="moved or removed"):
        await record_in(store, [envelope("unknown")])
    with pytest.raises(Unavailable, match="moved or removed"):
        await record_in(store, [envelope("refused")])
    path.unlink()
    (tmp_path / "larger" / path.name).rename(path)
