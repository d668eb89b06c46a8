"""The servers: how each contender is started on a given database file."""

import sys
from pathlib import Path

from bench import traffic
from bench.server import Program

NO_LIMIT = "1000000000"
INBOX = "bench.inbox:inbox"
SOURCES = "bench.sources:inbox"
API_TOKEN = "token-of-the-benchmarks"


def noop(database: Path) -> Program:
    return Program([sys.executable, "-m", "bench.baselines.noop"], {})


def as_written(database: Path) -> Program:
    command = [sys.executable, "-m", "bench.baselines.as_written"]
    return Program(command, {"DB_PATH": str(database)})


def as_written_worker(database: Path) -> Program:
    command = [sys.executable, "-m", "bench.baselines.as_written_worker"]
    return Program(command, {"DB_PATH": str(database)})


def ackbox(database: Path) -> Program:
    return Program(_serve("--no-workers"), _settings(database, "WARNING"))


def ackbox_source(database: Path) -> Program:
    """With a source that verifies its sender."""
    settings = _settings(database, "WARNING") | {"STRIPE_SECRET": traffic.STRIPE_SECRET}
    return Program([*_serve(SOURCES), "--no-workers"], settings)


def ackbox_info(database: Path) -> Program:
    """As it runs in production: a log line per event, down a pipe that is read."""
    return Program(_serve("--no-workers"), _settings(database, "INFO"), drained=True)


def ackbox_working(database: Path) -> Program:
    """With as many workers as it has by default, and a handler that does nothing."""
    return Program(_serve(INBOX), _settings(database, "WARNING"))


def ackbox_working_20(database: Path) -> Program:
    settings = _settings(database, "WARNING") | {"WORKER_COUNT": "20"}
    return Program(_serve(INBOX), settings)


def _serve(argument: str) -> list[str]:
    return [sys.executable, "-m", "ackbox", "serve", argument]


def _settings(database: Path, log_level: str) -> dict[str, str]:
    return {
        "DB_PATH": str(database),
        "API_TOKEN": API_TOKEN,
        "DURABILITY": "full",
        "LOG_LEVEL": log_level,
        "QUEUE_MAXSIZE": NO_LIMIT,
    }
