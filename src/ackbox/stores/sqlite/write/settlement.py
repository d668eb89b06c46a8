"""`EventQueue.settle`: an outcome applies only if its claim `(ledger_id, run)` still matches."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import apsw
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
from ackbox.stores.sqlite.write.jobs import Operation

Row = tuple[Any, ...]


Run = tuple[int, int]
"""A row and the number of its run. One batch may have two runs of an event."""


def run_of(settlement: Settlement) -> Run:
    return settlement.claim.ledger_id, settlement.claim.run


class Settling:
    def __init__(self, now: datetime) -> None:
        self._now = now

    def settle(self, settlements: Sequence[Settlement]) -> Operation[set[Run]]:
        """Write the outcomes. The operation returns the runs that are settled. This includes runs
        that an earlier call settled but could not report, because its result was lost. If a run is
        settled, its holder settled it, because nobody else can."""

        def operation(connection: apsw.Connection) -> set[Run]:
            sql = Statements(connection)
            if self._apply(sql, settlements) == len(settlements):
                return {run_of(settlement) for settlement in settlements}
            claims = [run_of(settlement) for settlement in settlements]
            return {(row, run) for row, run in sql.fetch("settled", claims=claims)}

        return operation

    def _apply(self, sql: Statements, settlements: Sequence[Settlement]) -> int:
        """Return how many outcomes applied. An outcome whose claim is lost changes nothing."""
        by_block: dict[str, list[Row]] = defaultdict(list)
        for settlement in settlements:
            block, values = self._row(settlement)
            claim = settlement.claim
            by_block[block].append((claim.ledger_id, claim.run, *values))
        applied = 0
        for block, rows in by_block.items():
            sql.run(block, settled=rows, now=to_text(self._now))
            applied += sql.connection.changes()
        lanes = [[s.claim.source, s.claim.lane] for s in settlements if s.claim.lane is not None]
        if lanes:
            sql.run("promote", lanes=lanes)
        return applied

    def _row(self, settlement: Settlement) -> tuple[str, Row]:
        match settlement.outcome:
            case Done(outcome):
                return "settle_done", (outcome,)
            case Release(parked, delay):
                due = self._due(delay) if delay else None
                return "settle_release", ("parked" if parked else None, due)
            case RetryLater(failure, delay):
                return "settle_retry", (self._due(delay), *self._failure(settlement, failure))
            case Snoozed(delay):
                return "settle_snooze", (self._due(delay),)
            case DeadLetter(failure):
                return "settle_dead", (None, *self._failure(settlement, failure))

    def _due(self, delay: timedelta) -> str:
        return to_text(self._now + bounded(delay))

    def _failure(self, settlement: Settlement, failure: Failure) -> Row:
        entry = {
            "at": to_text(self._now),
            "attempt": settlement.claim.attempts,
            "run": settlement.claim.run,
            "code": failure.code,
            "error": failure.error,
            **({} if failure.traceback is None else {"traceback": failure.traceback}),
        }
        return failure.error, failure.code, msgspec.json.encode(entry).decode()
