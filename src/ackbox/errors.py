"""Every error that ackbox raises on purpose.

AckboxError
├── SettingError            a setting is wrong; the process does not start
├── StartupError            the settings are right, but the inbox cannot start or serve
├── CommandFailed           a command could not do its work
├── InvalidStatement        the user's SQL is wrong, or is not allowed
├── HandlersStuck           handlers hang and cannot be ended; the process drains and exits
├── NotStored               nothing was stored
│   ├── InvalidEvent        a sender's request does not contain a valid event
│   ├── Overloaded          too many events or bytes are waiting (W7)
│   └── Unavailable         the store cannot take writes now
│       ├── StorageFull     the disk is full
│       ├── ReadOnly        the database is a standby, or read-only
│       └── Stopped         starting up or shutting down
├── OutcomeUnknown          nobody knows whether something was stored (F8)
│   └── ConnectionLost      PostgreSQL did not respond to a commit: repeating it is safe
└── StoreError              the ledger needs an operator
    ├── LedgerInUse         another process holds the lock
    ├── ForeignConnection   another SQLite library opens the ledger inside our process
    ├── LedgerCorrupt       the file is damaged, or is not a ledger
    └── SchemaMismatch      the schema is not the one that this release expects

Each store translates the errors of its driver once, at its edge.
"""


class AckboxError(Exception):
    """The root. The message is one line: what was expected, what came, and what to do."""


class SettingError(AckboxError):
    """A setting is wrong."""


class StartupError(AckboxError):
    """The settings are right, but the inbox cannot start or serve: the port is taken, the module
    is missing, two handlers tie, or a statement of `inbox.schema` is refused."""


class CommandFailed(AckboxError):
    """A command could not do its work."""


class InvalidStatement(AckboxError):
    """The user's SQL is wrong, or is not allowed."""


class HandlersStuck(AckboxError):
    """The handlers that hang past their time-out, plain or async, are as many as the workers."""


class NotStored(AckboxError):
    """Nothing was stored. Unless the event is invalid, the sender should retry later."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidEvent(NotStored):
    """A sender's request does not contain a valid event."""


class Overloaded(NotStored):
    """Too many events or bytes are waiting."""


class Unavailable(NotStored):
    """The store cannot be used now. A write that raised this error left no trace."""


class StorageFull(Unavailable):
    """The disk has no room for new events."""


class ReadOnly(Unavailable):
    """The database can be reached, but refuses writes."""


class Stopped(Unavailable):
    """The inbox is starting up, shutting down, or stopped."""


class OutcomeUnknown(AckboxError):
    """The write may be stored or not; only reading later shows which. SQLite raises this error if
    COMMIT fails with an I/O error or the files of the ledger were replaced, and ingest raises it if
    the store did not respond in time. A sender should send the event again: its key prevents a
    second event."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ConnectionLost(OutcomeUnknown):
    """The connection to PostgreSQL was lost during a commit. Repeating the write is safe, unlike
    after a failed COMMIT of SQLite: the same ids give the same result."""


OUTAGES = (Unavailable, OutcomeUnknown)
"""The store cannot be used now. For callers that repeat their work, whether or not it was stored:
their writes can be repeated."""


class StoreError(AckboxError):
    """The ledger cannot be used until an operator acts."""


class LedgerInUse(StoreError):
    """Another process holds the lock of this ledger."""


class ForeignConnection(StoreError):
    """Another SQLite library was about to open a ledger that is open in this process."""


class LedgerCorrupt(StoreError):
    """The file is damaged, or is not a ledger of ours."""


class SchemaMismatch(StoreError):
    """This release cannot work with the schema of the ledger."""
