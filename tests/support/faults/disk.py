"""The disk of a server of `support.servers.serve`, with faults that a test switches on and off."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.servers.server import FAST_MONITOR, Server, running


class Disk:
    def __init__(self, fault_file: Path) -> None:
        self._fault_file = fault_file
        self.heal()

    def break_(self, fault: str) -> None:
        """Switch on a fault (`sync`, `full`, `read-only` or `stall`) until `heal`. With ` once`, as
        in `sync once`, the fault ends by itself."""
        self._fault_file.write_text(fault)

    def heal(self) -> None:
        self._fault_file.write_text("")

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
    fault_file = folder / "faults"
    disk = Disk(fault_file)
    changes = {"faults": str(fault_file), "set": {**FAST_MONITOR, **(constants or {})}}
    with running(folder / "server", settings, changes, log_file) as server:
        yield server, disk
