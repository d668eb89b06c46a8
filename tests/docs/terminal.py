"""A reader who types the commands of a page in an empty folder. `make run` and uvicorn serve until
the next of them, or until the end; every other block runs in `sh`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from docs.pages import ROOT
from support.time.polling import eventually

BIN = Path(sys.executable).parent
STAND_IN = Path(__file__).with_name("curl.py")
PRINTED_ADDRESS = "localhost:8000"
SERVING = re.compile(
    r"(?P<settings>([A-Z_]+=\S+ )*)"
    r"(make run( ARGS=(?P<inbox>\S+))?|\.venv/bin/uvicorn (?P<app>\S+) --port 8000)"
)
_QUIET = {"PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTHONDONTWRITEBYTECODE": "1"}
_PASSED_ON = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


class Terminal:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = _environment(folder)
        self._address: str | None = None
        self._servers: list[subprocess.Popen[bytes]] = []

    def type(self, block: str) -> str:
        """Run the block and return its output. A command that fails fails the test."""
        if serving := SERVING.fullmatch(block.strip()):
            self._serve(serving)
            return ""
        done = subprocess.run(
            ["sh", "-ec", self._with_address(block)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}\n{self._log()}"
        return done.stdout

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()

    def _with_address(self, block: str) -> str:
        if self._address is None:
            assert PRINTED_ADDRESS not in block, "the page sends a request before `make run`"
            return block
        return block.replace(PRINTED_ADDRESS, self._address)

    def _serve(self, command_line: re.Match[str]) -> None:
        """Stop the server before by Ctrl-C, and start this one on a free port."""
        self._interrupt()
        settings = dict(pair.split("=", 1) for pair in command_line["settings"].split())
        if command_line["app"] is None:
            ours = [str(BIN / "ackbox"), "serve", *filter(None, [command_line["inbox"]])]
            server = self._start(ours, {**settings, "PORT": "0"})
            self._address = eventually(lambda: self._advertised_address(server), within=20)
        else:
            port = free_port()
            server = self._start(
                [str(BIN / "uvicorn"), command_line["app"], "--port", port], settings
            )
            eventually(lambda: self._accepts(server, port), within=20)
            self._address = f"localhost:{port}"

    def _start(self, command: list[str], settings: dict[str, str]) -> "subprocess.Popen[bytes]":
        with (self._folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**self._environment, **settings},
                stdout=log,
                stderr=log,
            )
        self._servers.append(server)
        return server

    def _interrupt(self) -> None:
        for server in self._servers:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
                assert server.wait(30) == 0, self._log()

    def _accepts(self, server: "subprocess.Popen[bytes]", port: str) -> bool:
        assert server.poll() is None, self._log()
        with socket.socket() as probe:
            return probe.connect_ex(("localhost", int(port))) == 0

    def _advertised_address(self, server: "subprocess.Popen[bytes]") -> str:
        assert server.poll() is None, self._log()
        try:
            holder = json.loads((self._folder / "ackbox.db.lock").read_text())
        except (OSError, ValueError):
            return ""
        ours = holder["pid"] == server.pid and holder.get("url")
        return str(holder["url"]).removeprefix("http://") if ours else ""

    def _log(self) -> str:
        log = self._folder / "server.log"
        return log.read_text() if log.exists() else ""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def _environment(folder: Path) -> Mapping[str, str]:
    """Return an environment without settings. `.venv` and `docs` are where a checkout has them, and
    curl exists on every machine."""
    (folder / ".venv").symlink_to(BIN.parent)
    (folder / "docs").symlink_to(ROOT / "docs")
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if which("curl") is None:
        passed["PATH"] = f"{_install_stand_in(folder / '.bin')}:{passed['PATH']}"
    return {**passed, "NO_PROXY": "*", "LOG_FORMAT": "json", "TMPDIR": str(folder), **_QUIET}


def _install_stand_in(folder: Path) -> Path:
    folder.mkdir()
    script = folder / "curl"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{STAND_IN}' \"$@\"\n")
    script.chmod(0o755)
    return folder
