"""Every error that ackbox raises on purpose.

AckboxError
├── SettingError            a setting is wrong; the process does not start
├── CommandFailed           a command could not do its work
├── InvalidEvent            a sender's request does not contain a valid event
├── InvalidStatement        the user's SQL is wrong, or is not allowed
├── HandlersStuck           handlers hang and cannot be ended; the process drains and exits
├── NotAccepted             the event was not acknowledged; the sender should retry
│   ├── Overloaded          too many events or bytes are waiting (W7)
│   └── Unavailable         the store cannot take writes now
│       ├── StorageFull     the disk is full
│       ├── ReadOnly        the database is a standby, or read-only
│       ├── OutcomeUnknown  SQLite's COMMIT failed: the events may be stored or not (F8)
│       └── Stopped         starting up or shutting down
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


class CommandFailed(AckboxError):
    """A command could not do its work."""


class InvalidEvent(AckboxError):
    """A sender's request does not contain a valid event."""


class InvalidStatement(AckboxError):
    """The user's SQL is wrong, or is not allowed."""


class HandlersStuck(AckboxError):
    """The handlers that hang past their time-out, plain or async, are as many as the workers."""


class NotAccepted(AckboxError):
    """The event was not acknowledged; the sender should retry later."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(NotAccepted):
    """Too many events or bytes are waiting."""


class Unavailable(NotAccepted):
    """The store cannot take writes now. The operation left no trace, with two exceptions: it may
    be stored after `OutcomeUnknown`, and if a connection to PostgreSQL is lost during a commit."""


class StorageFull(Unavailable):
    """The disk has no room for new events."""


class ReadOnly(Unavailable):
    """The database can be reached, but refuses writes."""


class OutcomeUnknown(Unavailable):
    """COMMIT failed with an I/O error, or the files of the ledger were replaced: only reading again
    after recovery shows what was stored. Only SQLite raises this error."""


class Stopped(Unavailable):
    """The inbox is starting up, shutting down, or stopped."""


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
