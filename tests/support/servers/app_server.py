"""`ackbox serve app:inbox`: the real server process, with handlers written for the test."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.databases.guarded import free_ports
from support.servers.server import Server, read_ledger, tracebacks_of_ackbox
from support.time.polling import eventually

_BUSY = {"WORKER_COUNT": "10", "LOG_LEVEL": "WARNING", "RETRY_JITTER": "none"}
OPEN = "SELECT count(*) FROM events WHERE status IN ('pending', 'processing')"


class AppServer(Server):
    """A server whose module is `app.py` in its folder. Its port stays the same over restarts."""

    def __init__(self, folder: Path, app: str, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "app.py").write_text(app)
        super().__init__(folder, {**_BUSY, "PORT": str(free_port()), **(settings or {})})

    def _start(self) -> Any:
        self._arguments = ["-m", "ackbox", "serve", "app:inbox"]
        return super()._start()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return read_ledger(self.ledger, sql, *values)

    def statuses(self) -> Counter[str]:
        return Counter(status for (status,) in self.query("SELECT status FROM events"))

    def wait_until_idle(self, *, within: float = 30.0) -> None:
        eventually(lambda: self.query(OPEN) == [(0,)], within=within, every=0.05)


@contextmanager
def serving(
    folder: Path, app: str, settings: Mapping[str, str] | None = None
) -> Iterator[AppServer]:
    """Start a server and wait until it is ready. It is always ended, and must log no traceback."""
    server = AppServer(folder, app, settings)
    try:
        server.wait_until_ready()
        yield server
        assert not tracebacks_of_ackbox(server.log), server.log
    finally:
        if server.process.poll() is None:
            server.kill()


def free_port() -> int:
    return free_ports(1)[0]
