"""Statements of `tx`, run in the commit that completes the event.

Several events share a transaction, each behind a savepoint, so that a failing statement does not
affect the other events. If the whole transaction fails, each event is settled again in a
transaction of its own.

The users' statements come first, with the check of their deferred constraints. Our lanes and live
rows are locked last, so a sender into a lane never waits for a user's statement. A shared
transaction is short, because other instances may lock the same rows in another order. A transaction
that waits for a lock gives up soon, long before the server looks for a deadlock.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import asyncpg

from ackbox.errors import OUTAGES, AckboxError, InvalidStatement
from ackbox.model import Done, Outcome, Settlement, Statement
from ackbox.stores.named_statements import name_statement
from ackbox.stores.outcomes import fallback_of
from ackbox.stores.postgres.database import (
    OUR_PLANS,
    USERS_PLANS,
    Database,
    Session,
    set_locally,
)
from ackbox.stores.postgres.failures import (
    CLIENT_ERRORS,
    is_closed,
    is_connection_lost,
    is_undeclared_pooling,
)
from ackbox.stores.postgres.user_sql import check_effect
from ackbox.stores.postgres.write.settlement import (
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
from ackbox.stores.postgres.write.submissions import submit

_SECONDS = 1.0
_SHARED_SECONDS = 0.05
_LOCK_SECONDS = 0.1
_LOCK_SECONDS_ALONE = 0.3
_LOCK_SECONDS_IMPATIENT = 0.02
_TRIES = 3
_PATIENT_SECONDS = 3.0
_LIMITS = ("statement_timeout", "lock_timeout")
_CHANGED_MEANWHILE = (
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
)
_RESTORE_OUR_SETTINGS = set_locally({**OUR_PLANS, **dict.fromkeys(_LIMITS, "DEFAULT")})
_TOO_LONG = f"tx: a statement took longer than {_SECONDS:g} s and was stopped."
_LOCK_TIMED_OUT = "tx: timed out waiting for a row lock held by another transaction."


class _Contended(Exception):
    """A statement could not get a lock in time, took too long, or was rolled back by PostgreSQL, as
    after a deadlock. The message is the reason to report; it is empty if the lock was the reason.
    """

    statement: Statement | None = None


class _Lost(Exception):
    """A claim was lost: nothing of its run may be committed."""


async def settle_with_effects(database: Database, settlements: Sequence[Settlement]) -> Written:
    """Settle each event with its effects. After `_PATIENT_SECONDS` of waiting for locks, the
    remaining events of this call hardly wait."""
    patient_until = monotonic() + _PATIENT_SECONDS
    written: Written = {}
    left = list(settlements)
    while left:
        ran: list[Settlement] = []
        try:
            written |= await _settle_together(database, left, ran)
        except (AckboxError, _Contended, _Lost):  # redone alone, each event reports its own error
            ran = ran or left[:1]
            for settlement in ran:
                patient = monotonic() < patient_until
                written |= await _settle_alone(database, settlement, patient)
        left = left[len(ran) :]
    return written


async def _settle_alone(database: Database, settlement: Settlement, patient: bool) -> Written:
    """Settle one event in a transaction of its own. An error that only the end of the transaction
    finds, such as a deferred constraint, is a failed run too."""
    patience = [_LOCK_SECONDS_ALONE] * _TRIES if patient else [_LOCK_SECONDS_IMPATIENT]
    reason, statement = "", None
    for seconds in patience:
        try:
            return await _settle_together(database, [settlement], [], seconds)
        except _Contended as contended:
            reason, statement = str(contended), contended.statement
            if reason == _TOO_LONG:
                break
            await asyncio.sleep(
                random.uniform(0, _LOCK_SECONDS)
            )  # so that two do not collide again
        except _Lost:
            return await _settled_before(database, settlement)
        except OUTAGES:
            raise
        except AckboxError as error:
            return await _fail(database, settlement, _describe(error))
    reason = reason or _LOCK_TIMED_OUT
    return await _fail(
        database, settlement, name_statement(reason, statement) if statement else reason
    )


async def _settled_before(database: Database, settlement: Settlement) -> Written:
    """Return the outcome that an earlier call wrote if its response was lost. The run may have
    failed."""
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
    """Settle as many events as there is time for in one transaction. `ran` lists them, even if the
    transaction fails."""
    until = monotonic() + _SHARED_SECONDS
    ended: list[Settlement] = []
    async with database.users_transaction() as session:
        await session.execute_raw(f"{_users_settings(patience)}; SAVEPOINT effects")
        for settlement in settlements:
            ran.append(settlement)
            ended.append(Settlement(settlement.claim, await _run(session, settlement.outcome)))
            if monotonic() > until:
                break
        with _users_errors(session):
            await session.execute_raw("SET CONSTRAINTS ALL IMMEDIATE")
        await session.execute_raw(_RESTORE_OUR_SETTINGS)
        await submit(session, ended)
        lanes = lanes_of(ended)
        await lock_lanes_of(session, lanes)
        if sorted(await lock_claims(session, ended)) != sorted(map(run_of, ended)):
            raise _Lost
        await apply(session, ended)
        await promote_lanes(session, lanes)
    return {settlement.claim.id: settlement.outcome for settlement in ended}


async def _run(session: Session, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Done) or not outcome.effects:
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
        with _users_errors(session):
            await session.execute(statement.sql, statement.params, _SECONDS * 3)
    except InvalidStatement as error:
        raise InvalidStatement(name_statement(str(error), statement)) from error.__cause__
    except _Contended as contended:
        contended.statement = statement
        raise


@contextmanager
def _users_errors(session: Session) -> Iterator[None]:
    """Turn an error of a user's statement into `InvalidStatement`, or into `_Contended` if a lock
    may be the cause. A statement that timed out may have waited for several locks: its event is
    settled again in a transaction of its own, and only if the statement times out there too, it is
    at fault. If the client's own time-out expires, the connection may be dead: the next statement
    on it then fails and reports that."""
    try:
        yield
    except asyncpg.QueryCanceledError as error:
        raise _Contended(_TOO_LONG) from error
    except _CHANGED_MEANWHILE as error:
        raise _Contended from error
    except asyncpg.TransactionRollbackError as error:
        raise _Contended(f"tx: {_message(error)}") from error
    except TimeoutError:
        raise InvalidStatement(_TOO_LONG) from None
    except InvalidStatement as error:
        raise InvalidStatement(f"tx: {error}") from None
    except (asyncpg.PostgresError, *CLIENT_ERRORS) as error:
        if is_undeclared_pooling(error) or _is_connection_failure(error, session):
            raise
        raise InvalidStatement(f"tx: {_message(error)}") from error


def _describe(error: AckboxError) -> str:
    message = _message(error.__cause__ or error)
    return message if message.startswith("tx: ") else f"tx: {message}"


def _is_connection_failure(error: Exception, session: Session) -> bool:
    """Return whether the connection is lost. An ERROR leaves the connection open, so it is blamed
    on the user's statement, whatever its code. A problem of the server, such as refusing writes,
    need not be detected here: our own statements then fail and report it."""
    if isinstance(error, asyncpg.PostgresError) and error.severity_en == "ERROR":
        return False
    if isinstance(error, CLIENT_ERRORS):
        return is_closed(session.connection)
    return is_connection_lost(error)


def _users_settings(patience: float) -> str:
    """Return the settings for users' statements. The lock time-out is random: of two transactions
    that wait for each other, one gives up first and the other continues."""
    lock = patience * random.uniform(0.5, 1.5)
    limits = dict(zip(_LIMITS, (_milliseconds(_SECONDS + lock), _milliseconds(lock)), strict=True))
    return set_locally({**USERS_PLANS, **limits})


def _message(error: BaseException) -> str:
    """Return the error in one line, without the server's DETAIL, which quotes whole rows."""
    text = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    return f"{' '.join(str(text).split()).rstrip('.')}."


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
