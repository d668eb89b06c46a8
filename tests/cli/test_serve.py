"""`ackbox serve`: its log lines, refusals and exit codes."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ackbox.config import Given, Settings
from ackbox.inbox import Inbox
from support.ledgers.events import envelopes
from support.servers.cli import COMMAND, Cli, Ledger, environment, run
from support.servers.server import Server, running
from support.time.polling import eventually

APP = "from ackbox import Inbox\ninbox = Inbox()\nother = 5\n"


def collect_served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Collect the settings with which an inbox would be served."""
    served: list[Settings] = []

    def serve(inbox: Inbox, overrides: Mapping[str, Given]) -> int:
        served.append(inbox.resolve(overrides).settings)
        return 0

    monkeypatch.setattr(Inbox, "serve", serve)
    return served


# W5
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_0(tmp_path: Path, stop: signal.Signals) -> None:
    with running(tmp_path) as server:
        server.process.send_signal(stop)
        assert server.process.wait(20) == 0


# W14
def test_the_log_shows_the_url_and_cautions(tmp_path: Path) -> None:
    with running(tmp_path, {"API_TOKEN": "short"}) as server:
        lines = eventually(lambda: [r for r in server.records() if r["event"] == "listening"])
        (caution,) = [r for r in server.records() if r["event"] == "caution"]
    assert lines[0]["url"] == f"http://127.0.0.1:{server.port}"
    assert lines[0]["level"] == "info"
    assert caution["level"] == "warning"
    assert "API_TOKEN is short" in caution["reason"]


# S16
@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"HOST": "0.0.0.0"}, True),
        ({"HOST": "0.0.0.0", "INGEST_TOKEN": "correct-horse-battery"}, False),
        ({"HOST": "localhost"}, False),
    ],
)
def test_a_public_bind_without_an_ingest_token_starts_with_a_warning(
    tmp_path: Path, settings: dict[str, str], warned: bool
) -> None:
    with running(tmp_path, {**settings, "PORT": "0"}) as server:
        reasons = [r["reason"] for r in server.records() if r["event"] == "caution"]
    assert ["INGEST_TOKEN" in reason for reason in reasons] == [True] * warned


def test_an_inbox_of_the_current_folder_is_served(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [Path(COMMAND[0]).with_name("ackbox"), "serve", "app:inbox"],
            cwd=tmp_path,
            env=environment({"PORT": "0", "LOG_FORMAT": "json"}),
            stderr=file,
        )
    try:
        eventually(lambda: '"listening"' in log.read_text(), within=20)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("app", "as in app:inbox"),
        ("app:", "as in app:inbox"),
        (":inbox", "as in app:inbox"),
        ("app.py:inbox", "not a file"),
        ("./app:inbox", "not a file"),
        (".app:inbox", "not a file"),
        ("missing:inbox", "no module missing"),
        ("app.missing:inbox", "no module app.missing"),
        ("app:nothing", "is not there"),
        ("app:other", "is of type int"),
    ],
)
def test_a_bad_target_is_one_line(cli: Cli, tmp_path: Path, target: str, reason: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    assert reason in cli("serve", target).line


BROKEN = {
    "a missing dependency": ("import missing_dependency\n", 1, "No module named 'missing_"),
    "an error": ("import os\n\nos.environ['NOT_THERE']\n", 3, "KeyError: 'NOT_THERE'"),
    "a syntax error": ("from ackbox import Inbox\ndef f(:\n", 2, "SyntaxError"),
    "an error in another module": ("import other\n", 1, "ValueError: other \\x1b"),
    "an error after another": (
        "try:\n    import missing_dependency\nexcept ImportError:\n    raise KeyError(1)\n",
        4,
        "KeyError: 1",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_error_inside_the_users_module_shows_the_users_frames(
    tmp_path: Path, kind: str
) -> None:  # N23
    source, line, expected = BROKEN[kind]
    (tmp_path / "broken.py").write_text(source)
    (tmp_path / "other.py").write_text("raise ValueError('other \\x1b')\n")
    done = run("serve", "broken:inbox", folder=tmp_path)
    first, *rest = done.err.splitlines()
    assert done.code == 1
    assert first.startswith("ackbox: The module broken could not be imported")
    assert any(f'broken.py", line {line}' in text for text in rest)
    assert expected in rest[-1]
    assert "importlib" not in done.err
    assert "ackbox/cli" not in done.err


def test_a_bad_rule_of_a_handler_is_one_line(tmp_path: Path) -> None:  # N23
    handler = "@inbox.on('*', timeout='30 seconds')\nasync def pay(event): pass\n"
    (tmp_path / "app.py").write_text(APP + handler)
    line = run("serve", "app:inbox", folder=tmp_path).line
    assert "app.pay: timeout='30 seconds' is not a duration such as '30s' or '5m'" in line


def test_no_workers_means_none(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    served = collect_served(monkeypatch)
    assert cli("serve", "--no-workers").code == 0
    assert cli("serve").code == 0
    assert [settings.worker_count for settings in served] == [0, 10]


# N24
def test_host_and_port_of_the_command_line_win_over_the_settings(tmp_path: Path) -> None:
    with running(tmp_path, {"HOST": "192.0.2.1", "PORT": "1"}, command=_ON_ANY_PORT) as server:
        (line,) = [r for r in server.records() if r["event"] == "listening"]
    assert line["url"] == f"http://127.0.0.1:{server.port}"


_ON_ANY_PORT = ("serve", "--host", "127.0.0.1", "--port", "0")


# N24
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--port", "65536"], "65535"),
        (["--port", "http"], "--port"),
        (["--host", "localhost:8000"], "without port"),
        (["--host", ""], "an IP address or a host name"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "work"])
def test_a_bad_host_or_port_is_a_usage_error(
    cli: Cli, command: str, options: list[str], reason: str
) -> None:
    done = cli(command, "app:inbox", *options)
    assert done.code == 2
    assert reason in done.err


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", folder=tmp_path, PORT=port)
    assert f"port {port}" in done.line
    assert "Address already in use" in done.line


def test_a_ledger_in_use_is_one_line_that_names_the_holder(server: Server, tmp_path: Path) -> None:
    done = run("serve", folder=tmp_path, DB_PATH=str(server.ledger), PORT="0")
    assert f"process {server.pid} at http://127.0.0.1:{server.port}" in done.line


# F16
@pytest.mark.parametrize("flaw", ["damaged", "empty", "not a database"])
def test_a_corrupt_ledger_is_one_line_and_stays_as_it_is(
    tmp_path: Path, ledger: Ledger, flaw: str
) -> None:
    path = ledger(envelopes(500))
    content = bytearray(path.read_bytes())
    if flaw == "damaged":
        content[8192:16384] = os.urandom(8192)
    path.write_bytes({"empty": b"", "not a database": b"x" * 9000}.get(flaw, bytes(content)))
    before = path.read_bytes()
    done = run("serve", folder=tmp_path, PORT="0")
    assert "is damaged" in done.line
    assert path.read_bytes() == before


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    done = run("serve", folder=tmp_path, DB_PATH="nowhere/events.db", PORT="0")
    assert "must exist and be writable" in done.line


def test_log_level_and_format_come_from_the_settings(tmp_path: Path) -> None:
    with running(tmp_path, {"LOG_LEVEL": "WARNING", "API_TOKEN": "short"}) as server:
        assert [json.loads(line)["event"] for line in server.log.splitlines()] == ["caution"]
