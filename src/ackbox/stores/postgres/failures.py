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
_NOT_STORABLE = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.ProgramLimitExceededError,
)


def is_connection_lost(error: BaseException) -> bool:
    """The server is away, or will not write; else it is one statement that failed."""
    return isinstance(error, _LOST) and not isinstance(error, asyncpg.DataError)


def translate(error: BaseException) -> AckboxError:
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, _REFUSED):
        return SettingError(f"DATABASE_URL cannot be used: {said}.")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreError(
            f"The user of DATABASE_URL lacks a right: {said}. Let it own the schema, or grant it "
            "CREATE on the schema, and SELECT, INSERT, UPDATE and DELETE on the tables."
        )
    if isinstance(error, asyncpg.SyntaxOrAccessError | asyncpg.InvalidSchemaNameError):
        return StoreError(
            f"The ledger's tables are not as they should be: {said}. Is the first schema of the "
            "search_path ackbox's own?"
        )
    if isinstance(error, _NOT_STORABLE):
        return InvalidEvent(f"The event cannot be stored: {said}")
    return _unavailable(error, said)


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
