"""What a handler wrote through `tx`, run in the commit that completes the event.

Several events share a transaction, each behind a savepoint, so that a statement that fails harms no
neighbour. If the transaction as a whole is lost, each is redone in one of its own.

The users' rows are locked first, and what they deferred is checked; our lanes and places last:
whoever sends into a lane waits for no statement of a user's. And a shared transaction is short, for
other instances want the same rows, in another order: who waits for a lock gives up all of it soon,
long before the server would look for a deadlock.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import asyncpg

from ackbox.errors import AckboxError, InvalidStatement, Unavailable
from ackbox.model import Done, Outcome, Settlement, Statement
from ackbox.stores.named_statements import name_statement
from ackbox.stores.outcomes import fallback_of
from ackbox.stores.postgres.database import (
    PLANS_OF_OURS,
    PLANS_OF_USERS,
    Database,
    Session,
    set_locally,
)
from ackbox.stores.postgres.failures import is_connection_lost, is_pooled_unawares
from ackbox.stores.postgres.settlement import (
    Written,
    apply,
    lanes_of,
    lock_claims,
    lock_lanes_of,
    pairs,
    promote_lanes,
    run_of,
    settle_plain,
)
from ackbox.stores.postgres.user_sql import check_effect

_SECONDS = 1.0
_SHARED_SECONDS = 0.05
_LOCK_SECONDS = 0.1
_LOCK_SECONDS_ALONE = 0.3
_LOCK_SECONDS_AT_LAST = 0.02
_TRIES = 3
_PATIENT_SECONDS = 3.0
_LIMITS = ("statement_timeout", "lock_timeout")
_BACK_TO_OURS = set_locally({**PLANS_OF_OURS, **dict.fromkeys(_LIMITS, "DEFAULT")})
_TOO_LONG = f"tx: a statement took longer than {_SECONDS:g} s and was stopped."
_KEPT_LOCKED = "tx: others kept what it wants locked."


class _Contended(Exception):
    """Others have locked what a statement wants, or it waits for them in a circle; the text says
    what else it may have been."""

    statement: Statement | None = None


class _Lost(Exception):
    """A claim is no longer ours: nothing that was done for it may be committed."""


async def settle_with_effects(database: Database, settlements: Sequence[Settlement]) -> Written:
    """Once others were waited for at length, nobody else in this call waits for them."""
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
                patient = monotonic() < patient_until
                written |= await _settle_alone(database, one, patient)
        left = left[len(ran) :]
    return written


async def _settle_alone(database: Database, settlement: Settlement, patient: bool) -> Written:
    """What only the end of the transaction finds, as a deferred constraint, is a failed run too."""
    patience = [_LOCK_SECONDS_ALONE] * _TRIES if patient else [_LOCK_SECONDS_AT_LAST]
    reason, statement = "", None
    for seconds in patience:
        try:
            return await _settle_together(database, [settlement], [], seconds)
        except _Contended as contended:
            reason, statement = str(contended), contended.statement
            if reason == _TOO_LONG:
                break
            await asyncio.sleep(random.uniform(0, _LOCK_SECONDS))  # or both come again at once
        except _Lost:
            return await _settled_before(database, settlement)
        except Unavailable:
            raise
        except AckboxError as error:
            return await _fail(database, settlement, _blame(error))
    reason = reason or _KEPT_LOCKED
    return await _fail(
        database, settlement, name_statement(reason, statement) if statement else reason
    )


async def _settled_before(database: Database, settlement: Settlement) -> Written:
    """By an earlier call whose answer was lost, and perhaps as a failed run."""
    rows = await database.fetch("settled", **pairs([settlement]))
    if not rows:
        return {}
    outcome = settlement.outcome
    failed = rows[0]["outcome"] in ("retry", "dead")
    return {settlement.claim.id: fallback_of(outcome, rows[0]["last_error"]) if failed else outcome}


async def _fail(database: Database, settlement: Settlement, error: str) -> Written:
    failed = Settlement(settlement.claim, fallback_of(settlement.outcome, error))
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
        await session.execute_raw(f"{_as_user(patience)}; SAVEPOINT effects")
        for one in settlements:
            ran.append(one)
            ended.append(Settlement(one.claim, await _run(session, one.outcome)))
            if monotonic() > until:
                break
        with _blamed_on_users():
            await session.execute_raw("SET CONSTRAINTS ALL IMMEDIATE")
        await session.execute_raw(_BACK_TO_OURS)
        lanes = lanes_of(ended)
        await lock_lanes_of(session, lanes)
        if sorted(await lock_claims(session, ended)) != sorted(map(run_of, ended)):
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
        await session.execute_raw("ROLLBACK TO SAVEPOINT effects")
        return fallback_of(outcome, str(error))
    await session.execute_raw("RELEASE SAVEPOINT effects; SAVEPOINT effects")
    return outcome


async def _execute(session: Session, statement: Statement) -> None:
    try:
        check_effect(statement.sql, session.address.schema)
        with _blamed_on_users():
            await session.execute(statement.sql, statement.params, _SECONDS * 3)
    except InvalidStatement as error:
        raise InvalidStatement(name_statement(str(error), statement)) from error.__cause__
    except _Contended as contended:
        contended.statement = statement
        raise


@contextmanager
def _blamed_on_users() -> Iterator[None]:
    """A statement that took too long may have waited for others, lock by lock: it is slow if it is
    so alone. If the server does not even end it, what follows finds out why."""
    try:
        yield
    except asyncpg.QueryCanceledError as error:
        raise _Contended(_TOO_LONG) from error
    except (asyncpg.LockNotAvailableError, asyncpg.InvalidCachedStatementError) as error:
        raise _Contended from error
    except asyncpg.TransactionRollbackError as error:
        raise _Contended(f"tx: {_said(error)}") from error
    except TimeoutError:
        raise InvalidStatement(_TOO_LONG) from None
    except InvalidStatement as error:
        raise InvalidStatement(f"tx: {error}") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if is_pooled_unawares(error) or _is_ours(error):
            raise
        raise InvalidStatement(f"tx: {_said(error)}") from error


def _blame(error: AckboxError) -> str:
    said = _said(error.__cause__ or error)
    return said if said.startswith("tx: ") else f"tx: {said}"


def _is_ours(error: Exception) -> bool:
    """The connection is lost; not so when the server goes on after what it calls an error, whatever
    its code is: the user's statement raised it. Is it a trouble of the server, as when it takes no
    writes, then our own statements meet it too."""
    if isinstance(error, asyncpg.PostgresError) and error.severity_en == "ERROR":
        return False
    return is_connection_lost(error) and not isinstance(error, ValueError)


def _as_user(patience: float) -> str:
    """Of two that wait for each other one gives up first, and the other goes on."""
    lock = patience * random.uniform(0.5, 1.5)
    limits = dict(zip(_LIMITS, (_milliseconds(_SECONDS + lock), _milliseconds(lock)), strict=True))
    return set_locally({**PLANS_OF_USERS, **limits})


def _said(error: BaseException) -> str:
    """Without the DETAIL of the server: it quotes whole rows."""
    text = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    return f"{' '.join(str(text).split()).rstrip('.')}."


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
