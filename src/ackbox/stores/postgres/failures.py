"""Translate the errors that asyncpg raises into our own. No other module does."""

from typing import Any

import asyncpg

from ackbox.errors import (
    AckboxError,
    ConnectionLost,
    InvalidEvent,
    ReadOnly,
    SettingError,
    StorageFull,
    StoreError,
    Unavailable,
)

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

CLIENT_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver itself raises these: because the connection is closed, or because it cannot send a
statement or read its result. Then the connection stays open."""

_REFUSED = (
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.UndefinedObjectError,  # the server does not know a parameter of the URL
    asyncpg.CantChangeRuntimeParamError,  # no client may set a parameter of the URL
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # after a failover we are connected to a standby
    *CLIENT_ERRORS,  # also raised if the server closes a connection while we acquire it
    OSError,
    TimeoutError,
)
_UNDECLARED_POOLING = (
    asyncpg.InvalidSQLStatementNameError,  # prepared on a connection that another client has now
    asyncpg.DuplicatePreparedStatementError,  # prepared by another client on our connection
)
_NOT_STORABLE = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.ProgramLimitExceededError,
)


def is_closed(connection: Any) -> bool:
    """Whether this connection is lost. The pool takes a connection back when it is lost, and its
    methods then raise."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def is_connection_lost(error: BaseException) -> bool:
    """Whether the server is unreachable or refuses all writes. Otherwise one statement failed. Of
    an error of `CLIENT_ERRORS` only `is_closed` can tell."""
    return isinstance(error, _LOST) and not isinstance(error, asyncpg.DataError)


def is_undeclared_pooling(error: BaseException | None) -> bool:
    """Whether a proxy gives each transaction another connection, although DATABASE_POOLING says
    otherwise."""
    return isinstance(error, _UNDECLARED_POOLING)


def translate(error: BaseException, *, committing: bool = False) -> AckboxError:
    """Return our own error. `committing`: if the connection was lost, the write may be stored."""
    message = _message(error)
    if isinstance(error, _REFUSED):
        return SettingError(f"DATABASE_URL cannot be used: {message}.")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreError(
            f"The user of DATABASE_URL lacks a right: {message}. Let it own the schema of the "
            "ledger, or grant it USAGE and CREATE on that schema, SELECT, INSERT, UPDATE and "
            "DELETE on its tables, and SELECT and USAGE on its sequences."
        )
    if is_undeclared_pooling(error):
        # The statement was not run, but the next may be: a running server keeps its events.
        return Unavailable(
            "A proxy before the database gives each transaction another connection, which lacks "
            "our prepared statements. Set ACKBOX_DATABASE_POOLING=transaction."
        )
    if isinstance(error, asyncpg.SyntaxOrAccessError | asyncpg.InvalidSchemaNameError):
        return StoreError(
            f"The ledger's tables are not as they should be: {message}. Does DATABASE_SCHEMA name "
            "a schema that only ackbox uses?"
        )
    if isinstance(error, _NOT_STORABLE):
        return InvalidEvent(f"The event cannot be stored: {message}")
    return _outage(error, message, committing)


def refused_by_driver(error: asyncpg.InterfaceError) -> StoreError:
    """Return our error for a statement that the driver could not send. Repeating it is no use."""
    return StoreError(f"The database driver refused a statement: {_message(error)}.")


def _message(error: BaseException) -> str:
    """Return the error's text in one line, without a full stop: it becomes part of a sentence."""
    if message := " ".join(str(error).split()).rstrip("."):
        return message
    return "it did not respond in time" if isinstance(error, TimeoutError) else type(error).__name__


def _outage(error: BaseException, message: str, committing: bool) -> Unavailable | ConnectionLost:
    if isinstance(error, asyncpg.DiskFullError):
        return StorageFull(f"The database server's disk is full: {message}.", retry_after=5)
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return ReadOnly(
            f"The database takes no writes: {message}. It is a standby, or "
            "default_transaction_read_only is on.",
            retry_after=5,
        )
    if is_connection_lost(error):
        outage = ConnectionLost if committing else Unavailable
        return outage(f"The database cannot be reached: {message}.", retry_after=5)
    return Unavailable(f"The database failed: {message}.")
