"""A FastAPI app with an inbox, in a process of its own. Its routes open the ledger directly."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.databases.guarded import free_ports
from support.http.posting import posted
from support.http.wire import Response, exchange, request
from support.servers.server import TESTS, read_ledger
from support.time.polling import eventually

WITHOUT_HOOK = "ackbox.stores.sqlite.store:refuse_in_process>undo"
WITHOUT_LOCKS = "ackbox.stores.sqlite.shared_locks:_set_lock"
WITHOUT_CHECK = "ackbox.stores.sqlite.ledger_files:LedgerFiles.compare"
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


class EmbeddedApp:
    """An app process. `without` names protections to switch off, as `module:attribute`."""

    def __init__(self, folder: Path, *, without: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ledger = folder / "inbox.db"
        self.port = free_ports(1)[0]
        self._without = without
        self._log = folder / "app.log"
        self.start()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def wal(self) -> Path:
        return self.ledger.with_name(self.ledger.name + "-wal")

    def start(self) -> None:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        settings = {"DB_PATH": str(self.ledger), "WORKER_COUNT": "0"}
        prefixed = {f"ACKBOX_{name}": value for name, value in settings.items()}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "support.servers.foreign_app",
                    str(self.port),
                    *self._without,
                ],
                cwd=self.folder,
                env={**inherited, "PYTHONPATH": str(TESTS), **settings, **prefixed},
                stdout=log,
                stderr=log,
            )
        eventually(self._is_ready, within=20.0)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def get(self, path: str) -> Response:
        return exchange(self.port, request("GET", path))

    def post(self, key: str) -> int:
        raw = posted(key)
        return exchange(self.port, request("POST", "/inbox/webhooks", raw)).status

    def open_read_and_close(self, way: str) -> str:
        """Open the ledger in this way; return the number of events, or the error, as text."""
        return str(self.get(f"/foreign/{way}").json())

    def keys(self) -> set[str]:
        rows = read_ledger(self.ledger, "SELECT idempotency_key FROM events")
        return {str(key) for (key,) in rows}

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.get("/inbox/ready").status == 200
        except ConnectionError:
            return False


@contextmanager
def embedded(folder: Path, *, without: tuple[str, ...] = ()) -> Iterator[EmbeddedApp]:
    app = EmbeddedApp(folder, without=without)
    try:
        yield app
        assert "Traceback" not in app.log, app.log
    finally:
        if app.process.poll() is None:
            app.kill()


def assert_foreign_closes_lose_nothing(folder: Path, rounds: int) -> None:
    """Check that no acknowledged event is lost while only the shared locks protect the log."""
    acked: set[str] = set()
    with embedded(folder, without=(WITHOUT_HOOK, WITHOUT_CHECK)) as app:
        for number in range(rounds):
            log = app.wal.stat().st_ino
            for way in ("sqlite3", "attach", "sqlalchemy", "aiosqlite", "open"):
                read = app.open_read_and_close(way)
                assert read.isdigit(), read
                key = f"{number}-{way}"
                assert app.post(key) == 202, app.log
                acked.add(key)
                assert app.wal.stat().st_ino == log
            app.kill()
            assert app.keys() == acked
            app.start()
