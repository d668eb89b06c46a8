"""A real server in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from support.polling import eventually
from support.wire import Response, exchange, request

TESTS = Path(__file__).parents[1]
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
WATCHFUL = {"ackbox.maintenance.monitor:_SECONDS": 0.05}
"""Gauges are read, and a store unavailable is looked at, more often than once a second."""
_OF_HANDLERS = ('"error_code":', '"handler":', "cannot be ended: ")
_QUIET = {"PORT": "0", "LOG_FORMAT": "json", "WORKER_COUNT": "0"}
_WITHOUT_TOKEN = ("/webhooks", "/health", "/ready")
API_TOKEN = "twelve-boxers-hunt-victor"
"""Of a server on PostgreSQL, which has no file for one; on SQLite the server creates its own."""


class Server:
    """Started in `folder`, where its ledger and its log are; settings are given by name."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        changes: Mapping[str, Any] | None = None,
        log_file: Path | None = None,
        command: Sequence[str] = ("serve",),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ledger = folder / "events.db"
        self.log_file = log_file or folder / "server.log"
        self.environment = _environment(self.ledger, settings or {})
        self._arguments = _arguments(changes, command)
        self._said_before = 0
        self.process = self._start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """All it has said; nothing if that went to a device."""
        return self.log_file.read_text() if self.log_file.is_file() else ""

    def records(self) -> list[dict[str, Any]]:
        """Every line of the log."""
        return [json.loads(line) for line in self.log.splitlines()]

    def wait_until_ready(self, *, within: float = 20.0) -> "Server":
        self.port = eventually(self._announced_port, within=within)
        eventually(self.is_ready, within=within)
        return self

    def is_ready(self) -> bool:
        return self.get("/ready").status == 200

    @property
    def token(self) -> str:
        """The operator token: as the settings have it, or as the server created it."""
        given = self.environment.get("API_TOKEN")
        return given or (self.folder / "events.db.token").read_text().strip()

    @property
    def operator(self) -> dict[str, str]:
        """The header by which an operator is known."""
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        """As whom the route is for: a sender, anybody, or an operator with the token."""
        known = {} if path.startswith(_WITHOUT_TOKEN) else self.operator
        return exchange(self.port, request("GET", path, headers={**known, **(headers or {})}))

    def post(self, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return exchange(self.port, request("POST", "/webhooks", raw, headers))

    def metric(self, name: str) -> float:
        """The value of one series, written as in the exposition: `name{label="value"}`."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name
        )

    def stop(self) -> int:
        """As an operator would; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def restart(self) -> "Server":
        """After `stop` or `kill`: on the same ledger, with the same settings."""
        self.process = self._start()
        return self.wait_until_ready()

    def peak_bytes(self) -> int:
        """The most memory it had at once, since its start or since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def row(self, event_id: str, *columns: str) -> tuple[Any, ...]:
        """What the ledger holds, seen from this process, which is not the server's."""
        sql = f"SELECT {', '.join(columns)} FROM events WHERE id = ?"
        (found,) = read_ledger(self.ledger, sql, event_id)
        return found

    def payload(self, event_id: str) -> bytes:
        stored: bytes = self.row(event_id, "payload")[0]
        return stored

    def _start(self) -> "subprocess.Popen[bytes]":
        self._said_before = len(self.log)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self._arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def _announced_port(self) -> int:
        assert self.process.poll() is None, self.log
        if "DATABASE_URL" in self.environment:
            return self._logged_port()
        try:
            holder = json.loads((self.folder / "events.db.lock").read_text())
        except (OSError, json.JSONDecodeError):
            return 0
        return _port(holder, self.pid)

    def _logged_port(self) -> int:
        lines = self.log[self._said_before :].splitlines()
        urls = [json.loads(line)["url"] for line in lines if _announces(line)]
        return int(urls[0].rpartition(":")[2]) if urls else 0


@contextmanager
def running(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    log_file: Path | None = None,
    command: Sequence[str] = ("serve",),
) -> Iterator[Server]:
    """A ready server; whatever happens, it is gone at the end, and it logged no traceback."""
    server = Server(folder, settings, changes, log_file, command)
    try:
        yield server.wait_until_ready()
        assert not tracebacks_of_ours(server.log), server.log
    finally:
        if server.process.poll() is None:
            server.kill()


def tracebacks_of_ours(log: str) -> list[str]:
    """Lines with a traceback that is not of a handler."""
    lines = [line for line in log.splitlines() if "Traceback" in line]
    return [line for line in lines if not any(name in line for name in _OF_HANDLERS)]


def read_ledger(ledger: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """As any other process of the machine may: through a read-only connection."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def _environment(ledger: Path, settings: Mapping[str, str]) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    token = {"API_TOKEN": API_TOKEN} if "DATABASE_URL" in settings else {}
    ours = {"PYTHONPATH": str(TESTS), "DB_PATH": str(ledger), **_QUIET, **token}
    chosen = {**ours, **settings}
    if not chosen.get("API_TOKEN"):  # given as empty: unset
        chosen.pop("API_TOKEN", None)
    return {**passed, **chosen}


def _arguments(changes: Mapping[str, Any] | None, command: Sequence[str]) -> list[str]:
    if changes is None:
        return ["-m", "ackbox", *command]
    return ["-m", "support.serve", json.dumps(changes), *command]


def _port(holder: dict[str, Any], pid: int) -> int:
    url = holder.get("url")
    return int(url.rpartition(":")[2]) if url and holder["pid"] == pid else 0


def _announces(line: str) -> bool:
    return '"listening"' in line and line.endswith("}")
