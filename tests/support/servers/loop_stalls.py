"""Measure how long the event loop of a server process was blocked.

The probe runs in the server: it wakes every few milliseconds and records the longest delay. Only
the part of a delay in which the process itself was computing counts, so that a test machine that is
busy with other processes does not look like a stall.
"""

import asyncio
import time
from pathlib import Path

from support.time.polling import eventually

STALL_SECONDS = 0.25
_EVERY_SECONDS = 0.005


def longest_stall(path: Path) -> float:
    """Return the longest stall since the start or since `reset_stalls`, in seconds."""
    eventually(path.exists)
    return float(path.read_text())


def reset_stalls(path: Path) -> None:
    """Start a new measurement: the probe resets itself when its file is gone."""
    path.unlink()
    eventually(path.exists)


async def record_stalls(path: Path) -> None:
    """Write the longest stall to the file, and again after each longer one."""
    longest = -1.0
    while True:
        wall, computing = time.monotonic(), time.process_time()
        await asyncio.sleep(_EVERY_SECONDS)
        stall = min(time.monotonic() - wall, time.process_time() - computing) - _EVERY_SECONDS
        if stall > longest or not path.exists():
            longest = max(stall, 0.0)
            _write(path, f"{longest:.6f}")


def _write(path: Path, text: str) -> None:
    """Replace the file atomically, so that a reader never sees half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
