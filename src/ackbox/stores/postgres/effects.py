"""What a handler wrote through `tx`, run in the commit that completes the event.

Several events share a transaction, each behind a savepoint, so that a statement that fails harms no
neighbour. If the transaction as a whole is lost, each is redone in one of its own.
"""

from collections.abc import Sequence
from contextlib import suppress

import asyncpg

from ackbox.errors import AckboxError, InvalidStatement, Unavailable
from ackbox.model import Done, Outcome, Settlement, Statement
from ackbox.stores.outcomes import otherwise
from ackbox.stores.postgres.database import (
    PLANS_OF_OURS,
    PLANS_OF_USERS,
    Database,
    Session,
    set_locally,
)
from ackbox.stores.postgres.failures import is_connection_lost
from ackbox.stores.postgres.rules import check_effect
from ackbox.stores.postgres.settling import (
    Written,
    apply,
    hold,
    hold_lanes_of,
    lanes_of,
    promote_lanes,
    run_of,
    settle_plain,
    settled_before,
)

_SECONDS = 1.0


async def settle_with_effects(database: Database, settlements: Sequence[Settlement]) -> Written:
    with suppress(AckboxError):  # each is redone alone, and says so then
        return await _settle_together(database, settlements)
    written: Written = {}
    for settlement in settlements:
        written |= await _settle_alone(database, settlement)
    return written


async def _settle_alone(database: Database, settlement: Settlement) -> Written:
    """What only COMMIT finds, as a deferred constraint, is a failed run too."""
    try:
        return await _settle_together(database, [settlement])
    except Unavailable:
        raise
    except AckboxError as error:
        failed = Settlement(settlement.claim, otherwise(settlement.outcome, f"tx: {error}"))
        return await settle_plain(database, [failed])


async def _settle_together(database: Database, settlements: Sequence[Settlement]) -> Written:
    lanes = lanes_of(settlements)
    async with database.transaction() as session:
        await session.steer(f"SET LOCAL statement_timeout = '{_SECONDS:g}s'")
        await hold_lanes_of(session, lanes)
        held = await hold(session, settlements)
        ours = [one for one in settlements if run_of(one) in held]
        ended = [Settlement(one.claim, await _run(session, one.outcome)) for one in ours]
        await apply(session, ended)
        await promote_lanes(session, lanes)
    written = {one.claim.id: one.outcome for one in ended}
    stale = [one for one in settlements if run_of(one) not in held]
    before = await settled_before(database, stale) if stale else set()
    return written | {one.claim.id: one.outcome for one in stale if run_of(one) in before}


async def _run(session: Session, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Done):
        return outcome
    await session.steer(f"SAVEPOINT effects; {set_locally(PLANS_OF_USERS)}")
    try:
        for statement in outcome.effects:
            await _execute(session, statement)
    except InvalidStatement as error:
        await session.steer("ROLLBACK TO SAVEPOINT effects")
        return otherwise(outcome, str(error))
    await session.steer(f"RELEASE SAVEPOINT effects; {set_locally(PLANS_OF_OURS)}")
    return outcome


async def _execute(session: Session, statement: Statement) -> None:
    check_effect(statement.sql)
    try:
        await session.execute(statement.sql, statement.params, _SECONDS * 2)
    except asyncpg.QueryCanceledError:
        raise InvalidStatement(
            f"tx: a statement took longer than {_SECONDS:g} s and was stopped."
        ) from None
    except asyncpg.TransactionRollbackError as error:  # a deadlock: all of it is redone alone
        raise Unavailable(f"tx: {error}.") from error
    except InvalidStatement as error:
        raise InvalidStatement(f"tx: {error}") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if is_connection_lost(error) and not isinstance(error, ValueError):
            raise
        raise InvalidStatement(f"tx: {' '.join(str(error).split())}.") from error
