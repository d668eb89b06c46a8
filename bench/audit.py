"""Counts what a server kept, after it stopped, against what it acknowledged.

Totals alone are not enough: a generator that cuts its connections at the end leaves some rows that
nobody counted as acknowledged, and those would hide as many lost ones. So each load's keys, which
are numbered, are searched for gaps too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import ledger
from bench.load.report import LoadReport

# Every table here has a rowid; on the ledger it is `ledger_id`.
NEWEST = "SELECT coalesce(max(rowid), 0) FROM events"
COUNT = "SELECT count(*) FROM events WHERE rowid > ?"
NUMBERS = """
WITH numbered AS (
    SELECT CAST(substr(idempotency_key, -9) AS INTEGER) AS number FROM events
    WHERE rowid > :after AND substr(idempotency_key, 10, 8) = :run
), settled AS (
    SELECT number FROM numbered WHERE number <= (SELECT max(number) FROM numbered) - :unsure
)
SELECT coalesce(max(number) - min(number) + 1, 0) - count(*) FROM settled
"""


@dataclass(frozen=True)
class Audit:
    kept: int
    missing: int


def newest(database: Path) -> int:
    """Where to start an audit: rows up to here were in the file before."""
    return _number(database, NEWEST, {}) if database.exists() else 0


def audit(database: Path, after: int, loads: Sequence[LoadReport]) -> Audit:
    missing = sum(
        _number(database, NUMBERS, {"after": after, "run": load.run, "unsure": _unsure(load)})
        for load in loads
    )
    return Audit(_number(database, COUNT, (after,)), missing)


def _unsure(load: LoadReport) -> int:
    """How many of the last numbers may rightly be absent: sent within twice the longest latency."""
    if not load.in_flight:
        return 0
    return load.in_flight + math.ceil(2 * load.rate * load.longest_ms / 1000)


def _number(database: Path, sql: str, values: ledger.Values) -> int:
    return int(ledger.read(database, sql, values)[0][0])
