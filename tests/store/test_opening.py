"""F16: a file that is damaged, foreign or incomplete is refused and left as it is."""

import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.errors import AckboxError, LedgerCorrupt, StoreError
from ackbox.stores.sqlite.files import open_ledger
from ackbox.stores.sqlite.limits import LIMITS, Limits
from support.ledgers.backends import all_rows, open_sqlite
from support.ledgers.events import envelope, envelopes, record_in
from support.servers.processes import open_files

PAGE = 4096


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file except the lock, which is taken before anything is checked."""
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.suffix != ".lock"}


async def fill(path: Path, count: int = 600) -> None:
    store = await open_sqlite(path)
    await record_in(store, envelopes(count, size=200))
    await store.close()


async def crash(path: Path) -> None:
    """Return the files that a killed process leaves, with all events still in the log."""
    store = await open_sqlite(path)
    await record_in(store, envelopes(200, prefix="early", size=200))
    for n in range(20):
        await record_in(store, [envelope(f"late-{n}", b"x" * 300)])
    aside = path.with_name("aside")
    aside.mkdir()
    for name in ("", "-wal", "-shm"):
        shutil.copy(path.with_name(path.name + name), aside)
    await store.close()
    for file in aside.iterdir():
        shutil.move(file, path.parent / file.name)
    aside.rmdir()


def flip(path: Path, at: int, size: int = 1024) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        flipped = bytes(byte ^ 0xFF for byte in file.read(size))
        file.seek(at)
        file.write(flipped)


def keys(path: Path, limits: Limits = LIMITS) -> set[str]:
    with closing(open_ledger(path, durability="full", limits=limits)) as connection:
        return {row["idempotency_key"] for row in all_rows(connection)}


async def test_a_kilobyte_flipped_in_the_middle_refuses_to_start(path: Path) -> None:  # F16
    await fill(path)
    flip(path, path.stat().st_size // PAGE // 2 * PAGE)
    before = snapshot(path.parent)
    with pytest.raises(LedgerCorrupt) as caught:
        await open_sqlite(path)
    assert "page how-to/recover" in str(caught.value)
    assert "backup" in str(caught.value)
    assert snapshot(path.parent) == before
    assert open_files(path.parent) == []


async def test_a_damaged_ledger_with_a_log_is_refused_and_the_log_is_left_too(path: Path) -> None:
    await fill(path)  # F16
    await crash(path)
    size = path.stat().st_size
    for page in range(size // 4 // PAGE * PAGE, size // 4 * 3, PAGE):  # the log has some of them
        flip(path, page)
    before = snapshot(path.parent)
    with pytest.raises(LedgerCorrupt):
        await open_sqlite(path)
    after = snapshot(path.parent)
    assert {n: after[n] for n in before if n != "ledger.db-shm"} == {
        n: before[n] for n in before if n != "ledger.db-shm"
    }


@pytest.mark.parametrize("part", range(1, 8))
async def test_damage_anywhere_is_found_or_harmless(path: Path, part: int) -> None:  # F16
    """There is never a crash, never a raw error of the driver, never a silent loss of rows."""
    await fill(path)
    flip(path, path.stat().st_size * part // 8 + 700)
    with suppress(LedgerCorrupt):
        assert len(keys(path)) == 600


async def test_a_log_cut_short_keeps_what_was_committed_before_the_cut(path: Path) -> None:  # F16
    await crash(path)
    log = path.with_name(path.name + "-wal")
    whole = log.read_bytes()
    seen: list[int] = []
    for cut in (0, 1, 100, PAGE, 3 * PAGE, len(whole) // 4):
        await crash(path)
        log.write_bytes(whole[: len(whole) - cut])
        stored = keys(path)
        late = {f"late-{n}" for n in range(20)}
        kept = len(stored & late)
        assert stored & late == {f"late-{n}" for n in range(kept)}  # a prefix: nothing from between
        assert len(stored) == 200 + kept
        seen.append(kept)
        for file in path.parent.iterdir():
            file.unlink()
    assert seen[0] == 20
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 20


async def test_a_shm_file_deleted_after_a_crash_is_created_again(path: Path) -> None:  # F16
    await crash(path)
    path.with_name(path.name + "-shm").unlink()
    assert len(keys(path)) == 220


async def test_garbage_in_the_shm_file_is_repaired(path: Path) -> None:  # F16
    await crash(path)
    flip(path.with_name(path.name + "-shm"), 0, 32768)
    assert len(keys(path)) == 220


def empty(path: Path) -> None:
    path.touch()


def garbage(path: Path) -> None:
    path.write_bytes(b"This is no database. " * 1000)


def header_only(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def half_a_header(path: Path) -> None:
    path.write_bytes(b"SQLite for")


def foreign(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('a')")


def foreign_events(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE events (id TEXT)")


def folder(path: Path) -> None:
    path.mkdir()


def log_without_ledger(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"a log with committed events")


def journal_without_ledger(path: Path) -> None:
    path.with_name(path.name + "-journal").write_bytes(b"a journal")


STRANGE: list[Callable[[Path], None]] = [
    empty,
    garbage,
    header_only,
    half_a_header,
    foreign,
    foreign_events,
    log_without_ledger,
    journal_without_ledger,
]


@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
async def test_a_file_that_is_not_a_ledger_is_refused_and_left_as_it_is(
    path: Path, make: Callable[[Path], None]
) -> None:  # F16: never an empty file in place of a broken one
    make(path)
    before = snapshot(path.parent)
    with pytest.raises(StoreError) as caught:
        await open_sqlite(path)
    assert str(path) in str(caught.value)
    assert snapshot(path.parent) == before
    assert open_files(path.parent) == []


@pytest.mark.parametrize(
    ("make", "what"), [(empty, "is empty"), (garbage, "is not a SQLite database")]
)
async def test_the_kind_of_an_irregular_file_is_named(
    path: Path, make: Callable[[Path], None], what: str
) -> None:  # F16
    make(path)
    with pytest.raises(LedgerCorrupt, match=what):
        await open_sqlite(path)


async def test_a_folder_with_the_name_of_the_ledger_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=str(path)):
        await open_sqlite(path)
    assert open_files(path.parent) == []


async def test_a_folder_that_does_not_exist_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match="must exist"):
        await open_sqlite(path.parent / "nowhere" / "ledger.db")


async def test_a_refused_start_frees_the_lock(path: Path) -> None:
    garbage(path)
    with pytest.raises(LedgerCorrupt):
        await open_sqlite(path)
    path.unlink()
    store = await open_sqlite(path)
    await store.close()


async def test_a_draft_left_by_a_crash_is_replaced(path: Path) -> None:
    for suffix in (".new", ".new-wal", ".new-journal", ".new-shm"):
        path.with_name(path.name + suffix).write_bytes(b"half built" * 1000)
    store = await open_sqlite(path)
    await record_in(store, [envelope()])
    await store.close()
    assert sorted(snapshot(path.parent)) == ["ledger.db", "ledger.db.reserve"]


async def test_a_ledger_that_cannot_be_built_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise apsw.FullError("injected: no room on the disk")

    monkeypatch.setattr("ackbox.stores.sqlite.migrations.apply", fail)
    with pytest.raises(AckboxError):
        await open_sqlite(path)
    assert snapshot(path.parent) == {}
    assert open_files(path.parent) == []


async def test_a_new_ledger_is_readable_by_its_owner_only(path: Path) -> None:
    store = await open_sqlite(path)
    await record_in(store, [envelope()])
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    await store.close()
    assert set(modes.values()) == {0o600}


async def test_the_check_at_start_has_a_time_limit(path: Path) -> None:
    await fill(path, 3000)
    assert len(keys(path, Limits(check_seconds=-1.0))) == 3000


async def test_a_clean_close_leaves_no_log_and_a_restart_needs_no_other(path: Path) -> None:
    await fill(path)  # W12
    assert sorted(snapshot(path.parent)) == ["ledger.db", "ledger.db.reserve"]
    assert len(keys(path)) == 600


async def test_opening_and_closing_leaks_no_file_descriptor(path: Path) -> None:
    for _ in range(3):
        await fill(path, 10)
    assert open_files(path.parent) == []


async def test_a_ledger_with_two_names_is_refused(path: Path) -> None:
    """Each name has its own lock and its own log, so each would have a writer."""
    await fill(path, 1)
    path.with_name("other.db").hardlink_to(path)
    with pytest.raises(StoreError, match="hard links"):
        await open_sqlite(path)
