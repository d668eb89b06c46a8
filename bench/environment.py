"""Where the figures were taken: without it they mean nothing."""

import os
import platform
import sqlite3
import time
from pathlib import Path
from statistics import median

import apsw

SYNCS = 200
PAGE = b"\0" * 4096


def describe(directory: Path) -> dict[str, str]:
    return {
        "cpus": f"{os.cpu_count()} (load {os.getloadavg()[0]:.1f})",
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (as-written: {sqlite3.sqlite_version})",
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": filesystem(directory),
        "fdatasync": f"{sync_latency_us(directory):.0f} us",
    }


def sync_latency_us(directory: Path) -> float:
    """Median time to append one page and have it on disk: the floor of a commit."""
    sync = getattr(os, "fdatasync", os.fsync)
    target = directory / "sync-probe"
    times: list[float] = []
    with target.open("wb", buffering=0) as probe:
        for _ in range(SYNCS):
            started = time.perf_counter()
            probe.write(PAGE)
            sync(probe.fileno())
            times.append(time.perf_counter() - started)
    target.unlink()
    return median(times) * 1e6


def filesystem(directory: Path) -> str:
    """Type of the deepest mount above the directory; "unknown" where there is no /proc."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except FileNotFoundError:
        return "unknown"
    above = [(len(point), kind) for point, kind in mounts if _holds(point, directory)]
    return max(above)[1] if above else "unknown"


def _holds(mount_point: str, directory: Path) -> bool:
    return directory.resolve().is_relative_to(mount_point)
