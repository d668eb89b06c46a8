"""`EventQueue.settle`: an outcome applies only if its claim `(ledger_id, run)` still matches."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ackbox.model import (
    DeadLetter,
    Done,
    Failure,
    Release,
    RetryLater,
    Settlement,
    Snoozed,
    to_text,
)
from ackbox.stores.outcomes import bounded
from ackbox.stores.sqlite.statements import Statements

Row = tuple[Any, ...]
Run = tuple[int, int]
"""A row and the number of its run. One batch may have two runs of an event."""


def run_of(settlement: Settlement) -> Run:
    return settlement.claim.ledger_id, settlement.claim.run


def settle(sql: Statements, settlements: Sequence[Settlement], now: datetime) -> set[Run]:
    """Write the outcomes, and return the runs that are settled. This includes runs that an earlier
    call settled but could not report, because its result was lost. If a run is settled, its holder
    settled it, because nobody else can."""
    claims = [run_of(settlement) for settlement in settlements]
    if _apply(sql, settlements, now) == len(settlements):
        return set(claims)
    return {(row, run) for row, run in sql.fetch("settled", claims=claims)}


def _apply(sql: Statements, settlements: Sequence[Settlement], now: datetime) -> int:
    """Return how many outcomes applied. An outcome whose claim is lost changes nothing."""
    by_block: dict[str, list[Row]] = defaultdict(list)
    for settlement in settlements:
        block, values = _row(settlement, now)
        by_block[block].append((*run_of(settlement), *values))
    applied = 0
    for block, rows in by_block.items():
        sql.run(block, settled=rows, now=to_text(now))
        applied += sql.connection.changes()
    lanes = [[s.claim.source, s.claim.lane] for s in settlements if s.claim.lane is not None]
    if lanes:
        sql.run("promote", lanes=lanes)
    return applied


def _row(settlement: Settlement, now: datetime) -> tuple[str, Row]:
    match settlement.outcome:
        case Done(outcome):
            return "settle_done", (outcome,)
        case Release(parked, delay):
            due = _due(delay, now) if delay else None
            return "settle_release", ("parked" if parked else None, due)
        case RetryLater(failure, delay):
            return "settle_retry", (_due(delay, now), *_failure(settlement, failure, now))
        case Snoozed(delay):
            return "settle_snooze", (_due(delay, now),)
        case DeadLetter(failure):
            return "settle_dead", (None, *_failure(settlement, failure, now))


def _due(delay: timedelta, now: datetime) -> str:
    return to_text(now + bounded(delay))


def _failure(settlement: Settlement, failure: Failure, now: datetime) -> Row:
    entry = {
        "at": to_text(now),
        "attempt": settlement.claim.attempts,
        "run": settlement.claim.run,
        "code": failure.code,
        "error": failure.error,
        **({} if failure.traceback is None else {"traceback": failure.traceback}),
    }
    return failure.error, failure.code, msgspec.json.encode(entry).decode()
