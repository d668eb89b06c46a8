"""The command itself: help, completion, version and exit codes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import ackbox
from ackbox.cli import app
from support.ledgers.events import envelopes
from support.servers.cli import COMMAND, Cli, Ledger, environment, run


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command and group with its name."""
    waiting = [("ackbox", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name, command
        below: dict[str, Any] = getattr(command, "commands", {})
        waiting += [(f"{name} {word}", each) for word, each in below.items()]


@pytest.mark.serial
def test_help_comes_within_0_3_seconds(tmp_path: Path) -> None:
    assert min(seconds_of("--help", tmp_path) for _ in range(5)) < 0.3


def seconds_of(argument: str, folder: Path) -> float:
    started = time.monotonic()
    assert run(argument, folder=folder).code == 0
    return time.monotonic() - started


# Each takes 20 to 400 ms of processor time to import.
ONLY_A_SERVER_NEEDS = {"fastapi", "prometheus_client", "structlog", "uvicorn"}
ONLY_A_COMMAND_NEEDS = {"apsw", "asyncio", "httpx2", "msgspec", "pydantic", "rich"}


def test_help_loads_nothing_that_only_a_command_needs(tmp_path: Path) -> None:
    loaded = modules_loaded_by("--help", folder=tmp_path)
    assert (ONLY_A_COMMAND_NEEDS | ONLY_A_SERVER_NEEDS).isdisjoint(loaded)


def test_a_command_loads_nothing_that_only_a_server_needs(tmp_path: Path) -> None:
    for command in ("migrate", "events list", "stats", "doctor"):
        loaded = modules_loaded_by(*command.split(), folder=tmp_path)
        assert "apsw" in loaded, command
        assert ONLY_A_SERVER_NEEDS.isdisjoint(loaded), command


def modules_loaded_by(*arguments: str, folder: Path) -> list[str]:
    script = (
        "import atexit, sys; from ackbox.cli import main\n"
        "atexit.register(lambda: print('', *sys.modules, file=sys.stderr)); main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={"DB_PATH": str(folder / "ledger.db")},
        capture_output=True,
        check=False,
    )
    return ended.stderr.decode().splitlines()[-1].split()


def test_every_command_and_option_says_what_it_is_for() -> None:
    silent = [name for name, command in commands() if not command.help]
    silent += [
        f"{name} {parameter.name}"
        for name, command in commands()
        for parameter in command.params
        if not parameter.help
    ]
    assert len(list(commands())) == 26
    assert silent == []


# N24
def test_h_and_help_show_the_same_after_every_command(cli: Cli) -> None:
    for name, _ in commands():
        _, *words = name.split()
        short, long = cli(*words, "-h"), cli(*words, "--help")
        assert (short.code, short.out) == (0, long.out), name
        assert long.out.startswith(f"Usage: {name} "), name


# N24
def test_bash_completes_commands_options_and_choices(tmp_path: Path) -> None:
    script = bash("ackbox --show-completion", tmp_path)
    assert script.startswith("_ackbox_completion()")
    assert complete(script, "ackbox ev", tmp_path) == ["events"]
    assert complete(script, "ackbox serve --p", tmp_path) == ["--port"]
    assert complete(script, "ackbox events list --order o", tmp_path) == ["oldest"]


# N24
def test_installed_completion_works_in_a_new_shell(tmp_path: Path) -> None:
    bash("ackbox --install-completion", tmp_path)
    rc_file = (tmp_path / ".bashrc").read_text()
    assert complete(rc_file, "ackbox mig", tmp_path) == ["migrate"]


def complete(script: str, line: str, home: Path) -> list[str]:
    """Return what bash offers for the last word of `line` after it has run `script`."""
    words = line.split()
    state = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
    call = f"{script}\n{state}\n_ackbox_completion ackbox\necho ${{COMPREPLY[*]}}"
    return bash(call, home).split()


def bash(script: str, home: Path) -> str:
    """Run `script` in a shell that finds `ackbox`, and that stays its parent process."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ntrue"],
        env={**environment({}), "PATH": path, "HOME": str(home)},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


def test_the_version_is_shown(tmp_path: Path) -> None:
    assert run("--version", folder=tmp_path).out == f"ackbox {ackbox.__version__}\n"


def test_an_unknown_command_is_a_usage_error(cli: Cli) -> None:
    assert cli("serv").code == 2


# W16
@pytest.mark.parametrize(
    "command",
    ["serve", "config", "migrate", "events list", "events show x", "send", "backup x"],
)
def test_a_bad_setting_is_one_line_that_names_it(cli: Cli, command: str) -> None:
    assert "PORT=http" in cli(*command.split(), PORT="http").line


def test_ctrl_c_ends_a_command_quietly_with_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "payload")
    process = subprocess.Popen(
        [*COMMAND, "send", "--file", "payload"],
        cwd=tmp_path,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with (tmp_path / "payload").open("wb"):  # returns when the command has opened it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(
    "command", ["config", "events list --limit 1000", "events show key-0 --payload"]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, ledger: Ledger, command: str) -> None:
    ledger(envelopes(1000))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *command.split()],
        cwd=tmp_path,
        env=environment({}),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "config"],
            cwd=tmp_path,
            env=environment({}),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1


def test_text_that_the_locale_cannot_show_is_escaped(tmp_path: Path) -> None:
    done = run("config", folder=tmp_path, DB_PATH="日.db", PYTHONIOENCODING="latin-1")
    assert done.code == 0
    assert r"\u65e5.db" in done.out
