"""`ackbox backup` (W12)."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ackbox.stores.sqlite.lock import LedgerLock
from support.http.posting import posted
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelopes, record_in
from support.ledgers.released_ledgers import sqlite_file
from support.servers.cli import Cli, Ledger, environment
from support.servers.server import Server, read_ledger, running
from support.time.polling import eventually

TOKEN = "a-token-of-twenty-characters"
COMPLETE = "is complete in itself: it needs no -wal file\n"
# One page per step, so that a copy of some hundred pages is slow enough to be interrupted.
SLOW = {"limits": {"backup_pages": 1}}
SLOW_COMMAND = (
    "from functools import partial; import ackbox.stores.sqlite.admin.backup as copying;"
    "copying.Backup = partial(copying.Backup, pages=1);"
    "from ackbox.cli import main; main()"
)


def keys(path: Path) -> set[str]:
    return {str(row[0]) for row in read_ledger(path, "SELECT idempotency_key FROM events")}


def fill(path: Path, count: int) -> None:
    async def record() -> None:
        store = await open_sqlite(path, durability="normal")
        await record_in(store, envelopes(count, size=4000))
        await store.close()

    path.parent.mkdir(exist_ok=True)
    asyncio.run(record())


@contextmanager
def halfway(folder: Path, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    """A slow `ackbox backup copy.db` that has reported its first tenth."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_COMMAND, "backup", "copy.db"],
        cwd=folder,
        env=environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    assert "(10 %)" in process.stderr.readline()
    try:
        yield process
        process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()


# W12
def test_a_stopped_ledger_is_copied_whole(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    path = ledger(envelopes(300))
    done = cli("backup", "copy.db")
    assert done.out == f"{tmp_path / 'copy.db'} {COMPLETE}"
    assert "(100 %)" in done.err
    assert keys(tmp_path / "copy.db") == keys(path)


# W12
def test_a_copy_has_what_only_the_log_holds(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.post(posted("in-the-log"))
        assert b"in-the-log" not in server.ledger.read_bytes()
        assert cli("backup", "copy.db", DB_PATH=str(server.ledger)).code == 0
        server.kill()
        assert cli("backup", "after.db", DB_PATH=str(server.ledger)).code == 0
    for name in ("copy.db", "after.db"):
        content = (tmp_path / name).read_bytes()
        alone = tmp_path / "alone" / name
        alone.parent.mkdir(exist_ok=True)
        alone.write_bytes(content)
        assert keys(alone) == {"in-the-log"}


# W12
def test_a_copy_is_a_ledger_that_serves(cli: Cli, server: Server, tmp_path: Path) -> None:
    server.post(posted("first"))
    folder = tmp_path / "restored"
    folder.mkdir()
    cli("backup", "restored/events.db", DB_PATH=str(server.ledger))
    with running(folder) as restored:
        assert restored.post(posted("first")).status == 200


def test_the_copy_is_for_its_owner_alone(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    ledger([])
    cli("backup", "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("serving", [True, False])
def test_nothing_is_overwritten(cli: Cli, server: Server, ledger: Ledger, serving: bool) -> None:
    path = server.ledger if serving else ledger([])
    (cli.folder / "copy.db").write_text("precious")
    assert "exists already" in cli("backup", "copy.db", DB_PATH=str(path)).line
    assert (cli.folder / "copy.db").read_text() == "precious"


# S1
def test_a_link_to_the_live_ledger_in_the_way_of_a_copy_is_refused(
    cli: Cli, tmp_path: Path
) -> None:
    with running(tmp_path / "server") as server:
        assert server.post(posted("before")).status == 202
        (cli.folder / "copy.db.part").symlink_to(server.ledger)
        size = server.ledger.stat().st_size
        refusal = cli("backup", "copy.db", DB_PATH=str(server.ledger)).line
        assert "copy.db.part exists and is not" in refusal
        assert server.ledger.stat().st_size == size
        assert server.post(posted("after")).status == 202
        server.kill()
        assert keys(server.ledger) == {"before", "after"}


# S1
def test_a_link_to_a_stopped_ledger_in_the_way_of_a_copy_is_refused(
    cli: Cli, ledger: Ledger
) -> None:
    path = ledger(envelopes(3))
    (cli.folder / "copy.db.part").symlink_to(path)
    content = path.read_bytes()
    assert "copy.db.part exists and is not" in cli("backup", "copy.db").line
    assert path.read_bytes() == content


@pytest.mark.parametrize("serving", [True, False])
def test_a_folder_that_is_not_there_is_one_line(
    cli: Cli, server: Server, ledger: Ledger, serving: bool
) -> None:
    path = server.ledger if serving else ledger([])
    assert "No such file" in cli("backup", "nowhere/copy.db", DB_PATH=str(path)).line


def test_a_relative_file_is_relative_to_the_current_folder(
    cli: Cli, server: Server, tmp_path: Path
) -> None:
    cli("backup", "copy.db", DB_PATH=str(server.ledger))
    assert (tmp_path / "copy.db").exists()
    assert not (server.folder / "copy.db").exists()


# S1, S5
def test_the_server_copies_into_its_folder_for_operators_alone(cli: Cli, tmp_path: Path) -> None:
    settings = {"API_TOKEN": TOKEN, "BACKUP_DIR": str(tmp_path)}
    with running(tmp_path / "server", settings) as server:
        ours = {"DB_PATH": str(server.ledger), "BACKUP_DIR": str(tmp_path)}
        refusal = cli("backup", "copy.db", **ours).line
        assert "401 Unauthorized: Send the operator token" in refusal
        assert not (tmp_path / "copy.db").exists()
        assert cli("backup", "copy.db", **ours, API_TOKEN=TOKEN).code == 0


# S1, S5
def test_a_command_knows_the_token_that_the_server_created(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server", {"BACKUP_DIR": str(tmp_path)}) as server:
        server.post(posted("first"))
        done = cli("backup", "copy.db", DB_PATH=str(server.ledger), BACKUP_DIR=".")
        assert done.code == 0, done.err
        assert keys(tmp_path / "copy.db") == {"first"}


# S13
@pytest.mark.parametrize("serving", [True, False])
def test_a_name_that_is_too_long_is_one_line(
    cli: Cli, server: Server, ledger: Ledger, serving: bool
) -> None:
    path = server.ledger if serving else ledger([])
    assert "too long" in cli("backup", "x" * 255, DB_PATH=str(path)).line


# S1
def test_a_copy_beside_the_server_is_of_one_moment(tmp_path: Path) -> None:
    fill(tmp_path / "server" / "events.db", 2000)
    with running(tmp_path / "server") as server:
        with halfway(tmp_path, DB_PATH=str(server.ledger)) as process:
            assert server.post(posted("meanwhile")).status == 202
            process.communicate(timeout=30)
        assert process.returncode == 0
        copied = keys(tmp_path / "copy.db")
        assert copied == keys(server.ledger) - {"meanwhile"}
        assert len(copied) == 2000


def test_a_copy_before_an_upgrade_is_not_migrated(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ackbox.db"
    shutil.copy(sqlite_file("0.1"), path)
    assert cli("backup", "copy.db").code == 0
    for file in (path, tmp_path / "copy.db"):
        assert read_ledger(file, "SELECT version FROM schema_migrations") == [(1,)]


def test_a_damaged_copy_is_not_kept(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    path = ledger(envelopes(500))
    with path.open("r+b") as file:
        file.seek(4096 * 6)
        file.write(b"\xff" * 4096 * 4)
    done = cli("backup", "copy.db")
    assert done.code == 1
    assert "It was removed" in done.err.splitlines()[-1]
    assert list(tmp_path.glob("copy.db*")) == []


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    fill(tmp_path / "ackbox.db", 6000)
    with halfway(tmp_path) as process:
        assert (tmp_path / "copy.db.part").exists()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert list(tmp_path.glob("copy.db*")) == []


def test_ctrl_c_stops_the_server_from_copying_on(tmp_path: Path) -> None:
    fill(tmp_path / "server" / "events.db", 6000)
    with running(tmp_path / "server", {"BACKUP_DIR": str(tmp_path)}, SLOW) as server:
        with halfway(tmp_path, DB_PATH=str(server.ledger), BACKUP_DIR=".") as process:
            process.send_signal(signal.SIGINT)
            process.wait(20)
        assert process.returncode == 130
        eventually(lambda: not list(tmp_path.glob("copy.db*")), within=0.5)
        assert server.post(posted("later")).status == 202
    assert list(tmp_path.glob("copy.db*")) == []


def test_a_server_that_stops_meanwhile_leaves_no_half_copy(tmp_path: Path) -> None:
    fill(tmp_path / "server" / "events.db", 6000)
    with running(tmp_path / "server", {"BACKUP_DIR": str(tmp_path)}, SLOW) as server:
        with halfway(tmp_path, DB_PATH=str(server.ledger), BACKUP_DIR=".") as process:
            assert server.stop() == 0
            _, err = process.communicate(timeout=20)
        assert process.returncode == 1
        assert err.splitlines()[-1].startswith("ackbox: The server at http://127.0.0.1")
    assert list(tmp_path.glob("copy.db*")) == []


# W12
def test_events_are_accepted_while_the_server_copies(tmp_path: Path) -> None:
    fill(tmp_path / "server" / "events.db", 2000)
    with running(tmp_path / "server", {"BACKUP_DIR": str(tmp_path)}, SLOW) as server:
        with halfway(tmp_path, DB_PATH=str(server.ledger), BACKUP_DIR=".") as process:
            assert server.post(posted("meanwhile")).status == 202
            process.communicate(timeout=30)
        assert process.returncode == 0
    assert "meanwhile" in keys(tmp_path / "copy.db")


def test_a_command_that_holds_the_ledger_is_named(cli: Cli, ledger: Ledger) -> None:
    path = ledger([])
    lock = LedgerLock(path)
    assert f"process {os.getpid()}" in cli("backup", "copy.db").line
    lock.release()


def replace(ledger: Path) -> None:
    other = ledger.with_name("other.db")
    fill(other, 1)
    other.replace(ledger)


def move_away(ledger: Path) -> None:
    ledger.rename(ledger.with_name("away.db"))


# F54
@pytest.mark.parametrize("change", [replace, move_away, Path.unlink])
def test_a_file_that_the_server_does_not_hold_is_not_copied_in_its_name(
    cli: Cli, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    with running(tmp_path / "server") as server:
        server.post(posted("held"))
        change(server.ledger)
        refusal = cli("backup", "copy.db", DB_PATH=str(server.ledger)).line
        assert (
            f"Process {server.pid} serves a ledger that {server.ledger} no longer names" in refusal
        )
        assert "Do not stop the process" in refusal
    assert list(tmp_path.glob("copy.db*")) == []


# F54
@pytest.mark.parametrize("change", [replace, move_away, Path.unlink])
def test_what_a_server_holds_is_saved_into_its_backup_folder(
    cli: Cli, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    with running(tmp_path / "server", {"BACKUP_DIR": str(tmp_path)}) as server:
        server.post(posted("held"))
        change(server.ledger)
        done = cli("backup", "copy.db", DB_PATH=str(server.ledger), BACKUP_DIR=".")
        assert done.code == 0, done.err
    assert keys(tmp_path / "copy.db") == {"held"}


# F54
@pytest.mark.parametrize("change", [replace, move_away])
def test_no_command_reads_a_file_that_the_server_does_not_hold(
    cli: Cli, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    with running(tmp_path / "server") as server:
        server.post(posted("held"))
        change(server.ledger)
        refusal = cli("events", "export", "--file", "out.jsonl", DB_PATH=str(server.ledger)).line
        assert f"{server.ledger} no longer names" in refusal
    assert not (tmp_path / "out.jsonl").exists()


# F54
def test_a_ledger_that_was_moved_back_is_copied_again(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.post(posted("held"))
        move_away(server.ledger)
        server.ledger.with_name("away.db").rename(server.ledger)
        assert cli("backup", "copy.db", DB_PATH=str(server.ledger)).code == 0
    assert keys(tmp_path / "copy.db") == {"held"}


# F54
def test_a_deleted_ledger_is_copied_from_the_paused_process(tmp_path: Path) -> None:
    """Follow docs/how-to/recover.md for a server without BACKUP_DIR."""
    with running(tmp_path / "server") as server:
        server.post(posted("held"))
        for suffix in ("", "-wal"):
            server.ledger.with_name(server.ledger.name + suffix).unlink()
        server.process.send_signal(signal.SIGSTOP)
        for suffix in ("", "-wal"):
            copy_open_file(server.pid, f"{server.ledger}{suffix}", tmp_path / f"saved.db{suffix}")
        server.process.send_signal(signal.SIGCONT)
    assert keys(tmp_path / "saved.db") == {"held"}


def copy_open_file(pid: int, name: str, target: Path) -> None:
    links = Path(f"/proc/{pid}/fd").iterdir()
    source = next(link for link in links if str(link.readlink()) == f"{name} (deleted)")
    target.write_bytes(source.read_bytes())
