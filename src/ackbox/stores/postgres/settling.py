"""`EventQueue.settle`: each outcome applies only where `(id, run)` still match."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from ackbox.model import Again, Buried, Done, Release, Settlement
from ackbox.stores.outcomes import bounded
from ackbox.stores.postgres.database import Database, Rows, Session
from ackbox.stores.postgres.lanes import Lane, hold_lanes, promote

Values = dict[str, list[Any]]
Run = tuple[int, int]
"""A row and its run: a batch may hold a run that lost its claim beside the one that took it."""


async def settle_plain(database: Database, settlements: Sequence[Settlement]) -> set[Run]:
    """Returns those that stand as settled by their run, be it by an earlier call whose answer was
    lost: only the holder of a run can have settled it. Usually all are done and no lane is in it:
    one round trip."""
    by_block = _by_block(settlements)
    lanes = lanes_of(settlements)
    if len(by_block) == 1 and not lanes:
        ((block, values),) = by_block.items()
        held = _runs(await database.fetch(block, **values))
    else:
        async with database.transaction() as session:
            await hold_lanes_of(session, lanes)
            held = await apply(session, settlements)
            await promote_lanes(session, lanes)
    if len(held) < len(settlements):
        held |= await settled_before(database, settlements)
    return held


async def apply(session: Session, settlements: Sequence[Settlement]) -> set[Run]:
    held: set[Run] = set()
    for block, values in _by_block(settlements).items():
        held |= _runs(await session.fetch(block, **values))
    return held


async def hold(session: Session, settlements: Sequence[Settlement]) -> set[Run]:
    """Those that can be settled; nobody takes them over before the end of the transaction."""
    return _runs(await session.fetch("held", **pairs(settlements)))


async def settled_before(database: Database, settlements: Sequence[Settlement]) -> set[Run]:
    """By an earlier call whose answer was lost."""
    return _runs(await database.fetch("settled", **pairs(settlements)))


def run_of(settlement: Settlement) -> Run:
    return settlement.claim.ledger_id, settlement.claim.run


def lanes_of(settlements: Sequence[Settlement]) -> set[Lane]:
    claims = [settlement.claim for settlement in settlements]
    return {(claim.source, claim.lane) for claim in claims if claim.lane is not None}


async def hold_lanes_of(session: Session, lanes: Collection[Lane]) -> None:
    if lanes:
        await hold_lanes(session, lanes)


async def promote_lanes(session: Session, lanes: Collection[Lane]) -> None:
    if lanes:
        await promote(session, lanes)


def pairs(settlements: Sequence[Settlement]) -> Values:
    """In the order in which rows are locked everywhere, so that nobody waits in a circle."""
    claims = sorted(run_of(settlement) for settlement in settlements)
    return {"rows": [row for row, _ in claims], "runs": [run for _, run in claims]}


def _runs(rows: Rows) -> set[Run]:
    return {(row[0], row[1]) for row in rows}


def _by_block(settlements: Sequence[Settlement]) -> dict[str, Values]:
    blocks: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    for settlement in sorted(settlements, key=lambda one: one.claim.ledger_id):
        block, row = _row(settlement)
        values = {"rows": settlement.claim.ledger_id, "runs": settlement.claim.run, **row}
        for name, value in values.items():
            blocks[block][name].append(value)
    return blocks


def _row(settlement: Settlement) -> tuple[str, dict[str, Any]]:
    match settlement.outcome:
        case Done(outcome):
            return "settle_done", {"outcomes": outcome}
        case Release(held, delay):
            return "settle_release", {"held": held, "delays": bounded(delay)}
        case Again(failure, delay):
            failed = {"errors": failure.error, "codes": failure.code}
            return "settle_retry", {"delays": bounded(delay), **failed}
        case Buried(failure):
            return "settle_dead", {"errors": failure.error, "codes": failure.code}
