"""What went through a ledger while a load ran on it, read from its rows after the server stopped.

Nothing watches during the load. The times are the server's own: an event is received when its body
was read, completed when its outcome is handed to the database; the commits are not waited for.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bench import ledger
from bench.load.report import LoadReport
from bench.sample import Backlog

FIRST = "SELECT min(created_at) FROM events WHERE substr(idempotency_key, 10, 8) = :run"
SO_FAR = """
SELECT count(*) FILTER (WHERE created_at < :moment), count(*) FILTER (WHERE processed_at < :moment)
FROM events
"""
TIMES = """
SELECT created_at, processed_at FROM events
WHERE status = 'completed' AND substr(idempotency_key, 10, 8) = :run
"""
HANDLED = "SELECT count(*) FROM events WHERE status = 'completed' AND outcome = 'handled'"
COMPLETED = "SELECT min(processed_at), max(processed_at) FROM events"


@dataclass(frozen=True)
class Flow:
    """`growth` is what the backlog gained in the second half, of the events received in it."""

    completed_rate: float
    backlog: Backlog
    growth: float


def during(database: Path, load: LoadReport) -> Flow:
    """The window begins with the first event of this load and is as long as it ran."""
    begin = datetime.fromisoformat(ledger.read(database, FIRST, {"run": load.run})[0][0])
    moments = [begin + timedelta(seconds=load.seconds * share) for share in (0.0, 0.5, 1.0)]
    received, completed = zip(*(_so_far(database, moment) for moment in moments), strict=True)
    backlog = [came - went for came, went in zip(received, completed, strict=True)]
    return Flow(
        completed_rate=(completed[2] - completed[0]) / load.seconds,
        backlog=(backlog[0], backlog[1], backlog[2]),
        growth=(backlog[2] - backlog[1]) / max(received[2] - received[1], 1),
    )


def latencies(database: Path, load: LoadReport) -> list[float]:
    """Seconds from received to completed, sorted, of the completed events of this load."""
    times = ledger.read(database, TIMES, {"run": load.run})
    return sorted(_seconds(created, processed) for created, processed in times)


def completing_seconds(database: Path) -> float:
    """From the first completion in the file to the last."""
    first, last = ledger.read(database, COMPLETED)[0]
    return _seconds(first, last)


def handled(database: Path) -> int:
    """Events that a handler completed: one that nobody handles is completed too."""
    return int(ledger.read(database, HANDLED)[0][0])


def _so_far(database: Path, moment: datetime) -> tuple[int, int]:
    # Times are text that begins alike in every contender: a prefix compares with all of them.
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
    received, completed = ledger.read(database, SO_FAR, {"moment": text})[0]
    return received, completed


def _seconds(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
