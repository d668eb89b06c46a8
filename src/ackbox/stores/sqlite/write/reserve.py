"""Disk space that is reserved for a full disk (F9).

While the disk is nearly full, new events are refused and the reserve file is deleted, so that the
operations that free space (settling, pruning) can still write. When there is space
again, new events are accepted, and the reserve file is created again.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOW_BYTES = 16 * 1024 * 1024
RESERVE_BYTES = 8 * 1024 * 1024
_MIB = 1024 * 1024


class Reserve:
    """The reserve file. `check` is cheap enough to be called every second, and sets `full`, which
    tells whether to refuse new events."""

    def __init__(self, ledger: Path, free_bytes: Callable[[Path], int]) -> None:
        self._path = ledger.with_name(ledger.name + ".reserve")
        self._free_bytes = free_bytes
        self.full = False
        self._free: int | None = None

    @property
    def reason(self) -> str:
        """Return why new events are refused, and until when, with the last measured numbers."""
        limits = (
            f"new events are refused below {LOW_BYTES // _MIB} MiB, and accepted again from "
            f"{resume_bytes() // _MIB} MiB on."
        )
        if self._free is None:
            return f"The disk is nearly full: {limits}"
        if self._free < resume_bytes():
            return f"The disk is nearly full, with {self._free // _MIB} MiB free: {limits}"
        return (
            f"SQLite reports a full disk, although {self._free // _MIB} MiB are free (a quota?): "
            "new events are refused until a write succeeds."
        )

    def check(self) -> bool:
        """Measure the free space. Return whether the disk is too full for new events.

        A folder that cannot be measured or written to is no reason to stop: SQLite will report it.
        """
        with suppress(OSError):
            self._update(self._free_bytes(self._path.parent))
        return self.full

    def give_up_if_needed(self) -> None:
        """Delete the reserve if the disk is nearly full. Called before the ledger is opened, so
        nothing is created: the file may turn out not to be a ledger."""
        with suppress(OSError):
            if self._free_bytes(self._path.parent) < LOW_BYTES:
                self.give_up()

    def give_up(self) -> None:
        self.full = True
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _update(self, free: int) -> None:
        self._free = free
        exists = self._path.exists()
        if not self.full and free < LOW_BYTES:
            self.give_up()
        elif self.full and free >= resume_bytes():
            self.full = False
        if not self.full and not exists and free >= resume_bytes():
            self._take()

    def _take(self) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(fd)


def free_bytes(folder: Path) -> int:
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize


def resume_bytes() -> int:
    """Return how much free space lets new events in again: the reserve must fit in too."""
    return LOW_BYTES + RESERVE_BYTES
