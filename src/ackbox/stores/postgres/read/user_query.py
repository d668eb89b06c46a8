"""`inbox.read`: a user's own SELECT, in a transaction that is read-only and leaves no trace in the
session."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg

from ackbox.errors import InvalidStatement, Unavailable
from ackbox.model import Statement
from ackbox.stores.named_statements import name_statement
from ackbox.stores.postgres.database import USERS_PLANS, Session, set_locally, without_values
from ackbox.stores.postgres.failures import (
    CLIENT_ERRORS,
    DRIVER_ERRORS,
    is_closed,
    is_undeclared_pooling,
)
from ackbox.stores.postgres.parameters import Compiled, compile_named
from ackbox.stores.postgres.user_values import fetch_with_values

_READ_ONLY = "SET TRANSACTION READ ONLY"
_NETWORK_SECONDS = 2.0
_ROWS_AT_ONCE = 2000
_WRONG = (
    asyncpg.SyntaxOrAccessError,
    asyncpg.DataError,
    asyncpg.CardinalityViolationError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.PLPGSQLError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.ReadOnlySQLTransactionError,  # a function tried to write in our read-only transaction
)


async def run_query(
    session: Session, sql: str, params: Mapping[str, object], seconds: float
) -> Sequence[Any]:
    """Return the rows. The server stops a query after `seconds` seconds; if the server does not
    respond then, the connection counts as lost."""
    compiled = compile_named(sql)
    limits = {**USERS_PLANS, "statement_timeout": f"{seconds * 1000:.0f}ms"}
    await session.execute_raw(f"{_READ_ONLY}; {set_locally(limits)}; SAVEPOINT query")
    with _users_errors(session, compiled, Statement(sql, params)):
        async with _unlock_on_failure(session):
            patience = seconds + _NETWORK_SECONDS
            rows = await fetch_with_values(session.connection, compiled, params, patience)
    await session.execute_raw(session.address.reset)
    return rows  # type: ignore[no-any-return]


async def to_dicts(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the rows as dicts. Of a large result, convert a part at a time: the event loop has
    other work too."""
    converted = [dict(row) for row in rows[:_ROWS_AT_ONCE]]
    for start in range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE):
        await asyncio.sleep(0)
        converted += [dict(row) for row in rows[start : start + _ROWS_AT_ONCE]]
    return converted


@contextmanager
def _users_errors(session: Session, compiled: Compiled, statement: Statement) -> Iterator[None]:
    """Turn an error of the query into `InvalidStatement`, which shows no value."""
    try:
        yield
    except asyncpg.QueryCanceledError as error:
        raise Unavailable("The read took too long and was stopped; request less.") from error
    except InvalidStatement as error:
        raise InvalidStatement(name_statement(f"inbox.read: {error}", statement)) from None
    except (*_WRONG, *CLIENT_ERRORS) as error:
        is_lost = isinstance(error, CLIENT_ERRORS) and is_closed(session.connection)
        if is_lost or is_undeclared_pooling(error):
            raise
        reason = f"inbox.read takes one SELECT: {compiled.by_name(without_values(error))}."
        raise InvalidStatement(name_statement(reason, statement)) from error


@asynccontextmanager
async def _unlock_on_failure(session: Session) -> AsyncIterator[None]:
    """Release advisory locks after a failure: a rollback undoes settings, but keeps these locks."""
    try:
        yield
    except BaseException:
        with suppress(*DRIVER_ERRORS):  # a lost connection has no locks
            if session.connection.is_in_transaction():
                unlock = "ROLLBACK TO SAVEPOINT query; SELECT pg_advisory_unlock_all()"
                await session.execute_raw(unlock)
        raise
