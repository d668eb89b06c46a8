"""The reserve file, also on disks whose free space cannot be measured (F9)."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackbox.model import ReceiptKind
from ackbox.stores.sqlite import store as store_module
from ackbox.stores.sqlite.files import open_ledger
from ackbox.stores.sqlite.write.reserve import LOW_BYTES, RESERVE_BYTES, Reserve, free_bytes
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, record_in
from support.ledgers.facts import Facts

ENOUGH = LOW_BYTES + RESERVE_BYTES


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


def reserve_of(path: Path) -> Path:
    return path.with_name(path.name + ".reserve")


LEVELS = [
    (ENOUGH, False, True),
    (ENOUGH - 1, False, False),  # enough to continue, not enough for a reserve
    (LOW_BYTES, False, False),
    (LOW_BYTES - 1, True, False),
    (0, True, False),
]


@pytest.mark.parametrize(("free", "full", "reserved"), LEVELS)
def test_the_first_check_decides_by_the_free_space(
    path: Path, free: int, full: bool, reserved: bool
) -> None:
    reserve = Reserve(path, lambda folder: free)
    assert reserve.check() is full
    assert reserve_of(path).exists() is reserved


def test_the_reserve_is_not_allocated_twice(path: Path) -> None:
    reserve = Reserve(path, lambda folder: ENOUGH)
    reserve.check()
    first = reserve_of(path).stat()
    reserve.check()
    assert reserve_of(path).stat().st_ino == first.st_ino


def test_a_reserve_of_an_earlier_run_is_deleted_too(path: Path) -> None:
    Reserve(path, lambda folder: ENOUGH).check()
    Reserve(path, lambda folder: 0).check()
    assert not reserve_of(path).exists()


def test_a_disk_that_cannot_be_measured_changes_nothing(path: Path) -> None:
    readings = iter([0])  # then measuring fails

    def measure(folder: Path) -> int:
        for reading in readings:
            return reading
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    reserve = Reserve(path, measure)
    assert reserve.check() is True
    assert reserve.check() is True
    fresh = Reserve(path, failing(errno.ENOENT))
    assert fresh.check() is False


@pytest.mark.parametrize("name", ["open", "posix_fallocate"])
def test_a_folder_without_a_reserve_is_no_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:  # F10
    monkeypatch.setattr(os, name, failing(errno.EROFS))
    reserve = Reserve(path, lambda folder: ENOUGH)
    assert reserve.check() is False
    assert reserve.check() is False
    assert not reserve_of(path).exists()


def test_a_reserve_that_cannot_be_removed_is_no_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # F10
    reserve = Reserve(path, lambda folder: ENOUGH)
    reserve.check()
    monkeypatch.setattr(Path, "unlink", failing(errno.EROFS))
    reserve.give_up()
    assert reserve.full


async def test_a_store_opens_and_works_where_the_disk_cannot_be_measured(
    open_it: OpenStore, facts: Facts
) -> None:
    store = await open_it(free_bytes=failing(errno.EIO))
    store.disk_space.check()
    assert (await record_in(store, [envelope()]))[0].kind is ReceiptKind.NEW
    assert store.unavailable_reason is None


async def test_the_reserve_is_deleted_before_opening_needs_the_space(
    open_it: OpenStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # F9: no crash loop
    await (await open_it()).close()
    assert reserve_of(path).exists()
    seen: list[bool] = []

    def note_and_open(*args: Any, **more: Any) -> Any:
        seen.append(reserve_of(path).exists())
        return open_ledger(*args, **more)

    monkeypatch.setattr(store_module, "open_ledger", note_and_open)
    await open_it(free_bytes=lambda folder: 0)
    assert seen == [False]


def test_free_bytes_are_those_an_ordinary_user_may_have(tmp_path: Path) -> None:
    usage = os.statvfs(tmp_path)
    assert abs(free_bytes(tmp_path) - usage.f_bavail * usage.f_frsize) < 1 << 30
