"""`EventQueue.settle`: an outcome is applied only if `(ledger_id, run)` still matches."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from ackbox.model import (
    DeadLetter,
    Done,
    EventId,
    Failure,
    Outcome,
    Release,
    RetryLater,
    Settlement,
    Snoozed,
)
from ackbox.stores.outcomes import bounded
from ackbox.stores.postgres.database import Database, Rows, Session
from ackbox.stores.postgres.write.lanes import Lane, lock_lanes, promote

Values = dict[str, Any]
Written = dict[EventId, Outcome]
Run = tuple[int, int]
"""A `ledger_id` and a run. A batch may contain a run that lost its claim next to the run that took
the event over."""


async def settle_plain(database: Database, settlements: Sequence[Settlement]) -> Written:
    """Settle, and return the outcomes of the runs that are settled. This includes runs that an
    earlier call settled but could not report, because its response was lost. If a run is settled,
    its holder settled it, because nobody else can. Usually all outcomes are `Done` and no event has
    a lane: then one round trip is enough."""
    by_block = _by_block(settlements)
    lanes = lanes_of(settlements)
    if len(by_block) == 1 and not lanes:
        ((block, values),) = by_block
        settled = len(await database.fetch(block, **values))
    else:
        async with database.transaction() as session:
            await lock_lanes_of(session, lanes)
            await lock_claims(session, settlements)
            settled = await apply(session, settlements)
            await promote_lanes(session, lanes)
    if settled == len(settlements):
        return {s.claim.id: s.outcome for s in settlements}
    stored = await settled_runs(database, settlements)
    return {s.claim.id: s.outcome for s in settlements if run_of(s) in stored}


async def apply(session: Session, settlements: Sequence[Settlement]) -> int:
    """Write the outcomes, and return how many runs still held their claim."""
    blocks = _by_block(settlements)
    return sum([len(await session.fetch(block, **values)) for block, values in blocks])


async def lock_claims(session: Session, settlements: Sequence[Settlement]) -> set[Run]:
    """Lock the live rows of claims that are still held, and return their runs. No other instance
    can take them over before the transaction ends. One statement locks all rows. If each block
    locked its own rows, the order would differ from that of other transactions, and the
    transactions could deadlock."""
    return _runs(await session.fetch("held", **pairs(settlements)))


async def settled_runs(database: Database, settlements: Sequence[Settlement]) -> set[Run]:
    """Return the runs that are settled, by this call or by an earlier call whose response was
    lost."""
    return _runs(await database.fetch("settled", **pairs(settlements)))


def run_of(settlement: Settlement) -> Run:
    return settlement.claim.ledger_id, settlement.claim.run


def lanes_of(settlements: Sequence[Settlement]) -> set[Lane]:
    claims = [settlement.claim for settlement in settlements]
    return {(claim.source, claim.lane) for claim in claims if claim.lane is not None}


async def lock_lanes_of(session: Session, lanes: Collection[Lane]) -> None:
    if lanes:
        await lock_lanes(session, lanes)


async def promote_lanes(session: Session, lanes: Collection[Lane]) -> None:
    if lanes:
        await promote(session, lanes)


def pairs(settlements: Sequence[Settlement]) -> Values:
    """Return rows and runs, sorted by row. Each row is listed once: of two runs of one event only
    the last can hold the claim."""
    claims = dict(sorted(map(run_of, settlements)))
    return {"rows": list(claims), "runs": list(claims.values())}


def _runs(rows: Rows) -> set[Run]:
    return {(row[0], row[1]) for row in rows}


def _by_block(settlements: Sequence[Settlement]) -> list[tuple[str, Values]]:
    """Group the settlements by the SQL block that writes them. Return each block's parameters."""
    groups: dict[tuple[str, str], dict[int, Settlement]] = defaultdict(dict)
    for settlement in sorted(settlements, key=run_of):
        groups[_group(settlement.outcome)][settlement.claim.ledger_id] = settlement
    return [(block, _values(list(group.values()))) for (block, _), group in groups.items()]


def _group(outcome: Outcome) -> tuple[str, str]:
    if isinstance(outcome, Done):  # the most frequent outcome
        return "settle_done", outcome.outcome
    match outcome:
        case Release():
            return "settle_release", ""
        case RetryLater():
            return "settle_retry", ""
        case Snoozed():
            return "settle_snooze", ""
        case DeadLetter():
            return "settle_dead", ""


def _values(group: Sequence[Settlement]) -> Values:
    values: Values = {
        "rows": [settlement.claim.ledger_id for settlement in group],
        "runs": [settlement.claim.run for settlement in group],
    }
    if isinstance(first := group[0].outcome, Done):
        return {**values, "outcome": first.outcome}
    columns: dict[str, list[Any]] = defaultdict(list)
    for settlement in group:
        for name, value in _columns(settlement.outcome).items():
            columns[name].append(value)
    return values | columns


def _columns(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Done():
            return {}
        case Release(parked, delay):
            return {"parked": parked, "delays": bounded(delay)}
        case Snoozed(delay):
            return {"delays": bounded(delay)}
        case RetryLater(failure, delay):
            return {"delays": bounded(delay), **_failure(failure)}
        case DeadLetter(failure):
            return _failure(failure)


def _failure(failure: Failure) -> dict[str, Any]:
    return {"errors": failure.error, "codes": failure.code, "tracebacks": failure.traceback}
