"""The disk under a server of `support.serve`: healthy until told otherwise."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.server import WATCHFUL, Server, running


class Disk:
    def __init__(self, orders: Path) -> None:
        self._orders = orders
        self.heal()

    def break_(self, fault: str) -> None:
        """`sync`, `full`, `read-only` or `stall`: from now on, until healed; or `sync once`."""
        self._orders.write_text(fault)

    def heal(self) -> None:
        self._orders.write_text("")

    @contextmanager
    def broken(self, fault: str) -> Iterator[None]:
        self.break_(fault)
        try:
            yield
        finally:
            self.heal()


@contextmanager
def on_a_faulty_disk(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    log_file: Path | None = None,
) -> Iterator[tuple[Server, Disk]]:
    orders = folder / "faults"
    disk = Disk(orders)
    changes = {"faults": str(orders), "set": {**WATCHFUL, **(constants or {})}}
    with running(folder / "server", settings, changes, log_file) as server:
        yield server, disk
