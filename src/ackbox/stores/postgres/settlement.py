"""`EventQueue.settle`: each outcome applies only where `(id, run)` still match."""

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
from ackbox.stores.postgres.lanes import Lane, lock_lanes, promote

Values = dict[str, Any]
Written = dict[EventId, Outcome]
Run = tuple[int, int]
"""A row and its run: a batch may hold a run that lost its claim beside the one that took it."""


async def settle_plain(database: Database, settlements: Sequence[Settlement]) -> Written:
    """Returns those that stand as settled by their run, be it by an earlier call whose answer was
    lost: only the holder of a run can have settled it. Usually all are done and no lane is in it:
    one round trip."""
    by_block = _by_block(settlements)
    lanes = lanes_of(settlements)
    if len(by_block) == 1 and not lanes:
        ((block, values),) = by_block
        settled = len(await database.fetch(block, **values))
    else:
        async with database.transaction() as session:
            await lock_lanes_of(session, lanes)
            await hold(session, settlements)
            settled = await apply(session, settlements)
            await promote_lanes(session, lanes)
    if settled == len(settlements):
        return {one.claim.id: one.outcome for one in settlements}
    stand = await settled_before(database, settlements)
    return {one.claim.id: one.outcome for one in settlements if run_of(one) in stand}


async def apply(session: Session, settlements: Sequence[Settlement]) -> int:
    """How many were still to be settled."""
    blocks = _by_block(settlements)
    return sum([len(await session.fetch(block, **values)) for block, values in blocks])


async def hold(session: Session, settlements: Sequence[Settlement]) -> set[Run]:
    """Those that can be settled; nobody takes them over before the end of the transaction. All at
    once: block by block they would be locked in another order than others lock them."""
    return _runs(await session.fetch("held", **pairs(settlements)))


async def settled_before(database: Database, settlements: Sequence[Settlement]) -> set[Run]:
    """By now, or by an earlier call whose answer was lost."""
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
    """Sorted by row, each once: of two runs of one event only the last can hold."""
    claims = dict(sorted(map(run_of, settlements)))
    return {"rows": list(claims), "runs": list(claims.values())}


def _runs(rows: Rows) -> set[Run]:
    return {(row[0], row[1]) for row in rows}


def _by_block(settlements: Sequence[Settlement]) -> list[tuple[str, Values]]:
    """The blocks that write these, and what each is given. All that are done alike share one."""
    groups: dict[tuple[str, str], dict[int, Settlement]] = defaultdict(dict)
    for settlement in sorted(settlements, key=run_of):
        groups[_group(settlement.outcome)][settlement.claim.ledger_id] = settlement
    return [(block, _values(list(alike.values()))) for (block, _), alike in groups.items()]


def _group(outcome: Outcome) -> tuple[str, str]:
    if isinstance(outcome, Done):  # nearly all are
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


def _values(alike: Sequence[Settlement]) -> Values:
    values: Values = {
        "rows": [one.claim.ledger_id for one in alike],
        "runs": [one.claim.run for one in alike],
    }
    if isinstance(first := alike[0].outcome, Done):
        return {**values, "outcome": first.outcome}
    columns: dict[str, list[Any]] = defaultdict(list)
    for one in alike:
        for name, value in _columns(one.outcome).items():
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
