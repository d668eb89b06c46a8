"""A real server, in a process of its own."""

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

from support.http.wire import Response, exchange, request
from support.time.polling import eventually

TESTS = Path(__file__).parents[2]
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
FAST_MONITOR: dict[str, Any] = {"ackbox.runtime:Monitor": {"seconds": 0.05}}
"""Make the monitor tick every 50 ms instead of every second."""
_HANDLER_MARKS = ('"error_code":', '"handler":', "cannot be ended: ")
_QUIET = {"PORT": "0", "LOG_FORMAT": "json", "WORKER_COUNT": "0"}
_WITHOUT_TOKEN = ("/webhooks", "/health", "/ready")
API_TOKEN = "twelve-boxers-hunt-victor"
"""The operator token of a server on PostgreSQL. On SQLite the server creates its own."""


class Server:
    """A server process. Its ledger and its log are in `folder`; settings are given by name."""

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
        self._log_start = 0
        self.process = self._start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """Return the whole log; it is empty if the log goes to a device."""
        return self.log_file.read_text() if self.log_file.is_file() else ""

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of the log, parsed."""
        return [json.loads(line) for line in self.log.splitlines()]

    def wait_until_ready(self, *, within: float = 20.0) -> "Server":
        self.port = eventually(self._advertised_port, within=within)
        eventually(self.is_ready, within=within)
        return self

    def is_ready(self) -> bool:
        return self.get("/ready").status == 200

    @property
    def token(self) -> str:
        """Return the operator token: `API_TOKEN`, or the one that the server created."""
        setting = self.environment.get("API_TOKEN")
        return setting or (self.folder / "events.db.token").read_text().strip()

    @property
    def operator(self) -> dict[str, str]:
        """Return the header that authenticates an operator."""
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        """Get the path, with the operator token if the route is for operators."""
        token = {} if path.startswith(_WITHOUT_TOKEN) else self.operator
        return exchange(self.port, request("GET", path, headers={**token, **(headers or {})}))

    def post(self, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return exchange(self.port, request("POST", "/webhooks", raw, headers))

    def metric(self, name: str) -> float:
        """Return the value of one series, named as in the exposition: `name{label="value"}`."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name
        )

    def stop(self) -> int:
        """Stop the server with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def restart(self) -> "Server":
        """Start again after `stop` or `kill`, on the same ledger with the same settings."""
        self.process = self._start()
        return self.wait_until_ready()

    def peak_bytes(self) -> int:
        """Return the peak of its resident memory since its start or since `reset_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def row(self, event_id: str, *columns: str) -> tuple[Any, ...]:
        """Read columns of one event from the ledger, in this process."""
        sql = f"SELECT {', '.join(columns)} FROM events WHERE id = ?"
        (row,) = read_ledger(self.ledger, sql, event_id)
        return row

    def payload(self, event_id: str) -> bytes:
        stored: bytes = self.row(event_id, "payload")[0]
        return stored

    def _start(self) -> "subprocess.Popen[bytes]":
        self._log_start = len(self.log)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self._arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def _advertised_port(self) -> int:
        assert self.process.poll() is None, self.log
        if "DATABASE_URL" in self.environment:
            return self._logged_port()
        try:
            holder = json.loads((self.folder / "events.db.lock").read_text())
        except (OSError, json.JSONDecodeError):
            return 0
        return _port(holder, self.pid)

    def _logged_port(self) -> int:
        lines = self.log[self._log_start :].splitlines()
        urls = [json.loads(line)["url"] for line in lines if _shows_url(line)]
        return int(urls[0].rpartition(":")[2]) if urls else 0


@contextmanager
def running(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    log_file: Path | None = None,
    command: Sequence[str] = ("serve",),
) -> Iterator[Server]:
    """Yield a ready server, and check at the end that it logged no traceback. The process never
    outlives the block."""
    server = Server(folder, settings, changes, log_file, command)
    try:
        yield server.wait_until_ready()
        assert not tracebacks_of_ackbox(server.log), server.log
    finally:
        if server.process.poll() is None:
            server.kill()


def tracebacks_of_ackbox(log: str) -> list[str]:
    """Return the log lines with a traceback that is not a handler's."""
    lines = [line for line in log.splitlines() if "Traceback" in line]
    return [line for line in lines if not any(name in line for name in _HANDLER_MARKS)]


def read_ledger(ledger: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Query the ledger through a read-only connection, as any other process may."""
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def _environment(ledger: Path, settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    token = {"API_TOKEN": API_TOKEN} if "DATABASE_URL" in settings else {}
    defaults = {"PYTHONPATH": str(TESTS), "DB_PATH": str(ledger), **_QUIET, **token}
    merged = {**defaults, **settings}
    if not merged.get("API_TOKEN"):  # an empty value means unset
        merged.pop("API_TOKEN", None)
    return {**inherited, **merged}


def _arguments(changes: Mapping[str, Any] | None, command: Sequence[str]) -> list[str]:
    if changes is None:
        return ["-m", "ackbox", *command]
    return ["-m", "support.servers.serve", json.dumps(changes), *command]


def _port(holder: dict[str, Any], pid: int) -> int:
    url = holder.get("url")
    return int(url.rpartition(":")[2]) if url and holder["pid"] == pid else 0


def _shows_url(line: str) -> bool:
    return '"listening"' in line and line.endswith("}")
