"""What asyncpg raises, as our own errors: translated once, here."""

import asyncpg

from ackbox.errors import (
    AckboxError,
    InvalidEvent,
    ReadOnly,
    SettingError,
    StorageFull,
    StoreError,
    Unavailable,
)

FOREIGN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

_REFUSED = (
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.UndefinedObjectError,  # a parameter of the URL that the server does not know,
    asyncpg.CantChangeRuntimeParamError,  # or that no client may set
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # a failover left us with a standby
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # seen when the server ends a connection just as it is taken
    OSError,
    TimeoutError,
)
_POOLED_UNAWARES = (
    asyncpg.InvalidSQLStatementNameError,  # prepared on a connection that somebody else has now,
    asyncpg.DuplicatePreparedStatementError,  # or by somebody else on the one that we have
)
_NOT_STORABLE = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.ProgramLimitExceededError,
)


def is_connection_lost(error: BaseException) -> bool:
    """The server is away, or will not write; else it is one statement that failed."""
    return isinstance(error, _LOST) and not isinstance(error, asyncpg.DataError)


def is_pooled_unawares(error: BaseException | None) -> bool:
    """A proxy gives each transaction another connection, and nobody told us."""
    return isinstance(error, _POOLED_UNAWARES)


def translate(error: BaseException) -> AckboxError:
    said = _said(error)
    if isinstance(error, _REFUSED):
        return SettingError(f"DATABASE_URL cannot be used: {said}.")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreError(
            f"The user of DATABASE_URL lacks a right: {said}. Let it own the schema, or grant it "
            "CREATE on the schema, and SELECT, INSERT, UPDATE and DELETE on the tables."
        )
    if is_pooled_unawares(error):
        # The statement was not run, and the next may be: a server that runs keeps what it has.
        return Unavailable(
            "A proxy before the database gives each transaction another connection, where our "
            "prepared statements are not. Set DATABASE_POOLING=transaction."
        )
    if isinstance(error, asyncpg.SyntaxOrAccessError | asyncpg.InvalidSchemaNameError):
        return StoreError(
            f"The ledger's tables are not as they should be: {said}. Is the first schema of the "
            "search_path ackbox's own?"
        )
    if isinstance(error, _NOT_STORABLE):
        return InvalidEvent(f"The event cannot be stored: {said}")
    return _unavailable(error, said)


def _said(error: BaseException) -> str:
    """Without a full stop: each is part of a sentence."""
    if said := " ".join(str(error).split()).rstrip("."):
        return said
    return "it did not answer in time" if isinstance(error, TimeoutError) else type(error).__name__


def _unavailable(error: BaseException, said: str) -> Unavailable:
    if isinstance(error, asyncpg.DiskFullError):
        return StorageFull(f"The database server's disk is full: {said}.", retry_after=5)
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return ReadOnly(
            f"The database takes no writes: {said}. It is a standby, or "
            "default_transaction_read_only is on.",
            retry_after=5,
        )
    if is_connection_lost(error):
        return Unavailable(f"The database cannot be reached: {said}.", retry_after=5)
    return Unavailable(f"The database failed: {said}.")
