"""What is said of an error of the database's driver."""

import asyncpg
import pytest

from ackbox.errors import StoreError, Unavailable
from ackbox.stores.postgres.database import Address, Session
from ackbox.stores.postgres.failures import is_connection_lost, translate

HINT = 'prepared statement "__asyncpg_stmt_10__" does not exist\nset statement_cache_size to 0.'


@pytest.mark.parametrize(
    "error",
    [asyncpg.InvalidSQLStatementNameError(HINT), asyncpg.DuplicatePreparedStatementError(HINT)],
    ids=lambda error: type(error).__name__,
)
def test_a_proxy_that_nobody_told_of_is_told_with_the_setting(error: Exception) -> None:
    """As what can be tried again: a running server loses nothing, and the next try may work."""
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
def test_no_sentence_ends_twice(error: Exception) -> None:
    assert ".." not in str(translate(error))


def test_a_time_out_says_what_did_not_happen() -> None:
    assert str(translate(TimeoutError())) == (
        "The database cannot be reached: it did not respond in time."
    )


def test_what_a_time_out_says_itself_is_told() -> None:
    assert "connect to 10.0.0.1" in str(translate(TimeoutError("connect to 10.0.0.1")))


class Elsewhere:
    """A connection where somebody else has prepared what we would."""

    async def fetch(self, *_: object, **__: object) -> None:
        raise asyncpg.DuplicatePreparedStatementError(HINT)


async def test_a_proxy_is_not_taken_for_a_fault_of_the_users_statement() -> None:
    """Which would end the event's run, where it has only to be settled again."""
    with pytest.raises(asyncpg.DuplicatePreparedStatementError):
        await Session(Elsewhere(), Address("")).execute("INSERT INTO seen VALUES (1)", {}, 1.0)


def test_a_missing_table_is_no_matter_of_a_proxy() -> None:
    assert isinstance(translate(asyncpg.UndefinedTableError("x")), StoreError)
