"""A `DB_PATH` at which no ledger can be opened is refused at once, with one line."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from support.servers.cli import Done, run

COMMANDS = ["stats", "events list", "serve", "migrate", "migrate --check", "backup copy.db"]


def make_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


def call(command: str, folder: Path, db_path: str = "ackbox.db") -> Done:
    return run(*command.split(), folder=folder, PORT="0", DB_PATH=db_path)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_fifo_in_place_of_the_ledger_is_refused_unopened(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "ackbox.db")
    line = call(command, tmp_path).line
    assert "ackbox.db is a FIFO, not a regular file" in line
    assert "DB_PATH" in line
    assert names(tmp_path) == ["ackbox.db"]


@pytest.mark.parametrize(("make", "kind"), [(make_socket, "a socket"), (os.mkdir, "a directory")])
def test_what_is_not_a_regular_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], None], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    make("ackbox.db")
    assert f"is {kind}, not a regular file" in call("stats", tmp_path).line


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ackbox.db").symlink_to("/dev/zero")
    assert "/dev/zero is a device, not a regular file" in call("stats", tmp_path).line


@pytest.mark.parametrize("command", [*COMMANDS, "events replay some-key"])
@pytest.mark.parametrize("path", ["ackbox.db", "ackbox.db/folder.db"])
def test_a_link_loop_in_place_of_the_ledger_is_refused(
    tmp_path: Path, command: str, path: str
) -> None:
    (tmp_path / "ackbox.db").symlink_to("ackbox.db")
    line = call(command, tmp_path, path).line
    assert f"{path}: its symbolic links form a loop" in line
    assert names(tmp_path) == ["ackbox.db"]


@pytest.mark.parametrize("kind", ["fifo", "loop"])
def test_doctor_reports_it_as_a_failure(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ackbox.db"
    if kind == "fifo":
        os.mkfifo(path, mode=0o600)
    else:
        path.symlink_to(path.name)
    done = call("doctor", tmp_path)
    assert done.code == 1
    assert done.err == ""
    (failure,) = [line for line in done.out.splitlines() if line.startswith("fail")]
    assert failure.startswith("fail  ledger")
    assert ("is a FIFO" if kind == "fifo" else "form a loop") in failure
    assert "-> Set ACKBOX_DB_PATH" in done.out


def test_a_copy_into_a_link_loop_is_refused(tmp_path: Path) -> None:
    assert call("migrate", tmp_path).code == 0
    (tmp_path / "loop").symlink_to("loop")
    line = call("backup loop/copy.db", tmp_path).line
    assert "Cannot write" in line
    assert "Too many levels of symbolic links" in line
