"""What a handler wrote through `tx`, run in the commit that completes the event.

Several events share a transaction, each behind a savepoint, so that a statement that fails harms no
neighbour. If the transaction as a whole is lost, each is redone in one of its own.

The users' rows are locked first, our lanes and places last: whoever sends into a lane waits for no
statement of a user's. And a shared transaction is short, for other instances want the same rows, in
another order: who waits for a lock gives up all of it soon, long before the server would look for a
deadlock.
"""

import asyncio
import random
from collections.abc import Sequence
from time import monotonic

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
_SHARED_SECONDS = 0.05
_LOCK_SECONDS = 0.1
_LOCK_SECONDS_ALONE = 0.3
_TRIES = 3
_PATIENT_SECONDS = 3.0
_LIMITS = ("statement_timeout", "lock_timeout")
_BACK_TO_OURS = set_locally({**PLANS_OF_OURS, **dict.fromkeys(_LIMITS, "DEFAULT")})
_KEPT_LOCKED = f"tx: others kept what it wants locked for longer than {_SECONDS:g} s."


class _Contended(Exception):
    """Others have locked what a statement wants, or it waits for them in a circle."""


class _Lost(Exception):
    """A claim is no longer ours: nothing that was done for it may be committed."""


async def settle_with_effects(database: Database, settlements: Sequence[Settlement]) -> Written:
    """Once others were waited for at length, nobody else in this call does so as often."""
    patient_until = monotonic() + _PATIENT_SECONDS
    written: Written = {}
    left = list(settlements)
    while left:
        ran: list[Settlement] = []
        try:
            written |= await _settle_together(database, left, ran)
        except (AckboxError, _Contended, _Lost):  # each is redone alone, and says so then
            ran = ran or left[:1]
            for one in ran:
                tries = _TRIES if monotonic() < patient_until else 1
                written |= await _settle_alone(database, one, tries)
        left = left[len(ran) :]
    return written


async def _settle_alone(database: Database, settlement: Settlement, tries: int) -> Written:
    """What only COMMIT finds, as a deferred constraint, is a failed run too."""
    for _ in range(tries):
        try:
            return await _settle_together(database, [settlement], [], _LOCK_SECONDS_ALONE)
        except _Contended:
            await asyncio.sleep(random.uniform(0, _LOCK_SECONDS))  # or both come again at once
        except _Lost:
            before = await settled_before(database, [settlement])
            return {settlement.claim.id: settlement.outcome} if before else {}
        except Unavailable:
            raise
        except AckboxError as error:
            return await _fail(database, settlement, f"tx: {_said(error.__cause__ or error)}")
    return await _fail(database, settlement, _KEPT_LOCKED)


async def _fail(database: Database, settlement: Settlement, error: str) -> Written:
    failed = Settlement(settlement.claim, otherwise(settlement.outcome, error))
    return await settle_plain(database, [failed])


async def _settle_together(
    database: Database,
    settlements: Sequence[Settlement],
    ran: list[Settlement],
    patience: float = _LOCK_SECONDS,
) -> Written:
    """As many as it has time for: `ran` has them, also if all of it fails."""
    until = monotonic() + _SHARED_SECONDS
    ended: list[Settlement] = []
    async with database.transaction() as session:
        await session.steer(f"{_as_user(patience)}; SAVEPOINT effects")
        for one in settlements:
            ran.append(one)
            ended.append(Settlement(one.claim, await _run(session, one.outcome)))
            if monotonic() > until:
                break
        await session.steer(_BACK_TO_OURS)
        lanes = lanes_of(ended)
        await hold_lanes_of(session, lanes)
        if await hold(session, ended) != set(map(run_of, ended)):
            raise _Lost
        await apply(session, ended)
        await promote_lanes(session, lanes)
    return {one.claim.id: one.outcome for one in ended}


async def _run(session: Session, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Done):
        return outcome
    try:
        for statement in outcome.effects:
            await _execute(session, statement)
    except InvalidStatement as error:
        await session.steer("ROLLBACK TO SAVEPOINT effects")
        return otherwise(outcome, str(error))
    await session.steer("RELEASE SAVEPOINT effects; SAVEPOINT effects")
    return outcome


async def _execute(session: Session, statement: Statement) -> None:
    check_effect(statement.sql)
    try:
        await session.execute(statement.sql, statement.params, _SECONDS * 2)
    except asyncpg.QueryCanceledError:
        raise InvalidStatement(
            f"tx: a statement took longer than {_SECONDS:g} s and was stopped."
        ) from None
    except (asyncpg.LockNotAvailableError, asyncpg.TransactionRollbackError) as error:
        raise _Contended from error
    except InvalidStatement as error:
        raise InvalidStatement(f"tx: {error}") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if _is_ours(error):
            raise
        raise InvalidStatement(f"tx: {_said(error)}") from error


def _is_ours(error: Exception) -> bool:
    """The connection is lost; not so when the server goes on after what it calls an error, whatever
    its code is: the user's statement raised it. Is it a trouble of the server, as when it takes no
    writes, then our own statements meet it too."""
    if isinstance(error, asyncpg.PostgresError) and error.severity_en == "ERROR":
        return False
    return is_connection_lost(error) and not isinstance(error, ValueError)


def _as_user(patience: float) -> str:
    """Of two that wait for each other one gives up first, and the other goes on."""
    lock = f"{patience * random.uniform(0.5, 1.5) * 1000:.0f}ms"
    limits = dict(zip(_LIMITS, (f"{_SECONDS:g}s", lock), strict=True))
    return set_locally({**PLANS_OF_USERS, **limits})


def _said(error: BaseException) -> str:
    return f"{' '.join(str(error).split()).rstrip('.')}."
