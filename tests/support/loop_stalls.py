"""How long the event loop of a server process was kept from its other work.

The probe runs in the server: it wants to run every few milliseconds, and notes the longest delay.
A delay counts only as far as the process itself was computing meanwhile, so that a test machine
which is busy with other processes does not look like a stall.
"""

import asyncio
import time
from pathlib import Path

from support.polling import eventually

STALL_SECONDS = 0.25
_EVERY_SECONDS = 0.005


def longest_stall(path: Path) -> float:
    """Return the longest stall since the start or since `forget_stalls`, in seconds."""
    eventually(path.exists)
    return float(path.read_text())


def forget_stalls(path: Path) -> None:
    """Count from now on: the probe begins anew when its file is gone."""
    path.unlink()
    eventually(path.exists)


async def watch_for_stalls(path: Path) -> None:
    """Write the longest stall to the file whenever there is a longer one."""
    longest = -1.0
    while True:
        wall, computing = time.monotonic(), time.process_time()
        await asyncio.sleep(_EVERY_SECONDS)
        stall = min(time.monotonic() - wall, time.process_time() - computing) - _EVERY_SECONDS
        if stall > longest or not path.exists():
            longest = max(stall, 0.0)
            _write(path, f"{longest:.6f}")


def _write(path: Path, text: str) -> None:
    """Write the file in one step, so that a reader never sees half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
