"""Every error ackbox raises on purpose.

AckboxError
├── SettingError            a setting is wrong; the process does not start
├── CommandFailed           a command could not do what it was asked to
├── InvalidEvent            what a sender handed over cannot be an event
├── InvalidStatement        SQL of the user's own is wrong, or may not be run
├── HandlersStuck           handlers hang and cannot be ended; the process drains and exits
├── NotAccepted             the event was not acknowledged; the sender should retry
│   ├── Overloaded          too much is waiting already (W7)
│   └── Unavailable         the store cannot take writes now
│       ├── StorageFull     no room on the disk
│       ├── ReadOnly        the database is a standby, or read-only
│       ├── OutcomeUnknown  COMMIT itself failed: stored or not, nobody knows (F8)
│       └── Stopped         starting up or shutting down
└── StoreError              the ledger needs an operator
    ├── LedgerInUse         another process holds the lock
    ├── ForeignConnection   another SQLite library opens the ledger inside our process
    ├── LedgerCorrupt       the file is damaged, or is not a ledger
    └── SchemaMismatch      the schema is newer, older or other than this release expects

Errors of a driver are translated once, at the edge of the store that uses it.
"""


class AckboxError(Exception):
    """The root: its text is one line that says what was expected, what came, what to do."""


class SettingError(AckboxError):
    """A setting is wrong."""


class CommandFailed(AckboxError):
    """A command could not do what it was asked to."""


class InvalidEvent(AckboxError):
    """What a sender handed over cannot be an event."""


class InvalidStatement(AckboxError):
    """SQL of the user's own is wrong, or may not be run."""


class HandlersStuck(AckboxError):
    """As many handlers, plain or async, hang past their time-out as there are workers."""


class NotAccepted(AckboxError):
    """The event was not acknowledged; trying again later is safe and right."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(NotAccepted):
    """Too many events, or bytes, are waiting already."""


class Unavailable(NotAccepted):
    """The store cannot take writes now. Nothing of this operation was kept, except perhaps after
    `OutcomeUnknown`."""


class StorageFull(Unavailable):
    """There is no room left for new events."""


class ReadOnly(Unavailable):
    """The database answers, and takes no writes."""


class OutcomeUnknown(Unavailable):
    """COMMIT failed with an I/O error: only a re-read after recovery can tell what was kept."""


class Stopped(Unavailable):
    """The inbox is starting up, shutting down, or gone."""


class StoreError(AckboxError):
    """The ledger cannot be used until an operator acts."""


class LedgerInUse(StoreError):
    """Another process holds the lock of this ledger."""


class ForeignConnection(StoreError):
    """Another SQLite library was about to open a ledger that is open in this process."""


class LedgerCorrupt(StoreError):
    """The file is damaged, or is not a ledger of ours."""


class SchemaMismatch(StoreError):
    """The schema on disk is not one this release can work with."""
