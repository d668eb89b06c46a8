"""The servers: how each contender is started on a given database file."""

import sys
from pathlib import Path

from bench.server import Program

NO_LIMIT = "1000000000"


def noop(database: Path) -> Program:
    return Program([sys.executable, "-m", "bench.baselines.noop"], {})


def as_written(database: Path) -> Program:
    command = [sys.executable, "-m", "bench.baselines.as_written"]
    return Program(command, {"DB_PATH": str(database)})


def ackbox(database: Path) -> Program:
    return Program(_serve(), _settings(database, "WARNING"))


def ackbox_info(database: Path) -> Program:
    """As it runs in production: a log line per event, down a pipe that is read."""
    return Program(_serve(), _settings(database, "INFO"), drained=True)


def _serve() -> list[str]:
    return [sys.executable, "-m", "ackbox", "serve", "--no-workers"]


def _settings(database: Path, log_level: str) -> dict[str, str]:
    return {
        "DB_PATH": str(database),
        "DURABILITY": "full",
        "LOG_LEVEL": log_level,
        "WORKER_COUNT": "0",
        "QUEUE_MAXSIZE": NO_LIMIT,
    }
