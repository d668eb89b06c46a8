"""Errors of the PostgreSQL driver, translated."""

import asyncpg
import pytest

from ackbox.errors import ConnectionLost, ReadOnly, StoreError, Unavailable
from ackbox.stores.postgres.database import Address, Session
from ackbox.stores.postgres.failures import is_connection_lost, translate

HINT = 'prepared statement "__asyncpg_stmt_10__" does not exist\nset statement_cache_size to 0.'


@pytest.mark.parametrize(
    "error",
    [asyncpg.InvalidSQLStatementNameError(HINT), asyncpg.DuplicatePreparedStatementError(HINT)],
    ids=lambda error: type(error).__name__,
)
def test_an_unconfigured_pooler_is_reported_with_the_setting(error: Exception) -> None:
    """The error is one to retry: a running server loses nothing, and a retry may succeed."""
    translated = translate(error)
    assert type(translated) is Unavailable
    assert "DATABASE_POOLING=transaction" in str(translated)
    assert "asyncpg" not in str(translated)
    assert not is_connection_lost(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.CannotConnectNowError("the system is starting up."),
        asyncpg.DiskFullError("no room.\n"),
        asyncpg.InsufficientPrivilegeError("denied."),
        asyncpg.UndefinedTableError("gone."),
        asyncpg.InvalidPasswordError("no."),
        asyncpg.QueryCanceledError("canceled.."),
        asyncpg.ReadOnlySQLTransactionError("read-only."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_message_ends_with_two_full_stops(error: Exception) -> None:
    assert ".." not in str(translate(error))


def test_a_time_out_without_text_gets_a_message() -> None:
    assert str(translate(TimeoutError())) == (
        "The database cannot be reached: it did not respond in time."
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError("reset"), ConnectionLost),
        (TimeoutError(), ConnectionLost),
        (asyncpg.AdminShutdownError("x"), ConnectionLost),
        (asyncpg.ReadOnlySQLTransactionError("x"), ReadOnly),
        (asyncpg.DeadlockDetectedError("x"), Unavailable),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_only_a_connection_lost_during_a_commit_leaves_the_outcome_unknown(
    error: Exception, kind: type[Exception]
) -> None:
    assert type(translate(error, committing=True)) is kind
    assert not isinstance(translate(error), ConnectionLost)


def test_the_text_of_a_time_out_is_kept() -> None:
    assert "connect to 10.0.0.1" in str(translate(TimeoutError("connect to 10.0.0.1")))


class PooledConnection:
    """A connection on which another client has prepared a statement of the same name."""

    async def fetch(self, *_: object, **__: object) -> None:
        raise asyncpg.DuplicatePreparedStatementError(HINT)


async def test_an_error_of_a_pooler_is_not_blamed_on_the_users_statement() -> None:
    """Blaming the statement would fail the run, which only has to be settled again."""
    with pytest.raises(asyncpg.DuplicatePreparedStatementError):
        await Session(PooledConnection(), Address("")).execute(
            "INSERT INTO seen VALUES (1)", {}, 1.0
        )


def test_a_missing_table_is_not_blamed_on_a_pooler() -> None:
    assert isinstance(translate(asyncpg.UndefinedTableError("x")), StoreError)
