"""One SQLite file has one server: the lock beside it."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from ackbox.errors import LedgerInUse, StoreError
from ackbox.stores.sqlite.lock import Holder, LedgerLock, find_holder, lock_path, read_holder
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.servers.processes import HOLDS_THE_LEDGER, process


async def test_a_second_server_is_refused_and_learns_who_is_first(path: Path) -> None:
    with process(HOLDS_THE_LEDGER, path) as first:
        with pytest.raises(LedgerInUse) as caught:
            await open_sqlite(path)
        assert f"process {first.pid}" in str(caught.value)
        assert "http://127.0.0.1:8000" in str(caught.value)


async def test_sigkill_frees_the_lock(path: Path) -> None:
    with process(HOLDS_THE_LEDGER, path) as first:
        os.kill(first.pid, signal.SIGKILL)
        first.wait(5)
        store = await open_sqlite(path)
        assert str(os.getpid()) in str(find_holder(path))
        await record_in(store, [envelope()])
        await store.close()


async def test_a_second_store_in_one_process_is_refused_too(path: Path) -> None:
    store = await open_sqlite(path)
    with pytest.raises(LedgerInUse, match=f"process {os.getpid()}"):
        await open_sqlite(path)
    await record_in(store, [envelope()])
    await store.close()


async def test_a_link_to_the_ledger_leads_to_the_same_lock(path: Path) -> None:
    store = await open_sqlite(path)
    link = path.with_name("link.db")
    link.symlink_to(path)
    with pytest.raises(LedgerInUse):
        await open_sqlite(link)
    await store.close()


def test_a_released_lock_is_free_and_names_no_holder(path: Path) -> None:
    held = LedgerLock(path)
    held.describe("http://localhost:1")
    assert read_holder(path) == Holder(os.getpid(), "http://localhost:1")
    held.describe(None)
    assert read_holder(path) == Holder(os.getpid(), None)
    held.release()
    assert read_holder(path) is None
    LedgerLock(path).release()


def test_a_second_release_touches_no_other_file(path: Path) -> None:
    held = LedgerLock(path)
    held.release()
    other = path.with_name("other")
    other.write_bytes(b"precious")
    with other.open("r+b") as file:  # gets the number of the descriptor that was closed
        held.release()
        held.describe("http://localhost:1")
        assert os.fstat(file.fileno()).st_size == len(b"precious")
    assert other.read_bytes() == b"precious"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b'{"pid":"x"}'])
def test_a_holder_without_a_readable_description_is_another_process(
    path: Path, content: bytes
) -> None:
    held = LedgerLock(path)
    lock_path(path).write_bytes(content)
    with pytest.raises(LedgerInUse, match="another process"):
        LedgerLock(path)
    held.release()


def test_a_description_that_cannot_be_written_prevents_no_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # F9
    def no_room(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    held = LedgerLock(path)
    with pytest.raises(LedgerInUse):
        LedgerLock(path)
    held.release()


def test_a_folder_without_locks_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StoreError, match="No locks available"):
        LedgerLock(path)
