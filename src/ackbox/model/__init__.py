"""The values that all other modules share: pure, immutable, without a clock or any I/O.

checks      checks of the fields that a source sets
claims      claims on events, and the outcomes of runs
events      envelopes, receipts and the durable row of an event
moments     times, as text and as an instant
operations  values for operators: replays, discards, the audit, event details, findings
queries     filters on the ledger, cursors and pages
retention   the retention policy, and the progress of a pass
seal        an envelope from the fields that a source gives
user_tables users' own tables, as the application declares them

Other packages import from here, not from these modules.
"""

from ackbox.model.checks import (
    NAME_LIMIT,
    check_moment,
    check_name,
    check_sequence,
)
from ackbox.model.claims import (
    CRASHED,
    ERROR_LIMIT,
    PARAMETERS_LIMIT,
    SUSPECT,
    TRACEBACK_LIMIT,
    Caps,
    Claim,
    DeadLetter,
    Done,
    Failure,
    Outcome,
    Release,
    RetryLater,
    Settlement,
    Snoozed,
    Statement,
    Suspect,
    WorkerId,
    make_failure,
)
from ackbox.model.events import (
    Content,
    Cursor,
    Envelope,
    EventId,
    EventKey,
    EventRecord,
    OutcomeName,
    RandomBits,
    Receipt,
    ReceiptKind,
    Status,
    Submission,
    fingerprint,
    is_event_id,
    new_event_id,
    new_receipt,
)
from ackbox.model.moments import (
    Clock,
    from_text,
    to_text,
)
from ackbox.model.operations import (
    AuditEntry,
    AuditPage,
    BackupProgress,
    Caller,
    DiscardKind,
    EventDetail,
    FailedRun,
    Finding,
    ReplayKind,
    Verdict,
)
from ackbox.model.queries import (
    LAST_MOMENT,
    LAST_SEQUENCE,
    SOURCE_CURSOR_PATTERN,
    EventFilter,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    Stats,
    check_type_pattern,
    filter_by_status,
    parse_source_cursor,
)
from ackbox.model.retention import (
    PruneResult,
    PurgeResult,
    RetentionPolicy,
    TombstonePass,
)
from ackbox.model.seal import seal
from ackbox.model.user_tables import InboxMigration, UserTables

__all__ = [
    "CRASHED",
    "ERROR_LIMIT",
    "LAST_MOMENT",
    "LAST_SEQUENCE",
    "NAME_LIMIT",
    "PARAMETERS_LIMIT",
    "SOURCE_CURSOR_PATTERN",
    "SUSPECT",
    "TRACEBACK_LIMIT",
    "AuditEntry",
    "AuditPage",
    "BackupProgress",
    "Caller",
    "Caps",
    "Claim",
    "Clock",
    "Content",
    "Cursor",
    "DeadLetter",
    "DiscardKind",
    "Done",
    "Envelope",
    "EventDetail",
    "EventFilter",
    "EventId",
    "EventKey",
    "EventRecord",
    "FailedRun",
    "Failure",
    "Finding",
    "InboxMigration",
    "Order",
    "Outcome",
    "OutcomeName",
    "Page",
    "PruneResult",
    "PurgeResult",
    "RandomBits",
    "Receipt",
    "ReceiptKind",
    "Release",
    "ReplayKind",
    "RetentionPolicy",
    "RetryLater",
    "Settlement",
    "Snoozed",
    "SourceCursor",
    "SourcePage",
    "Statement",
    "Stats",
    "Status",
    "Submission",
    "Suspect",
    "TombstonePass",
    "UserTables",
    "Verdict",
    "WorkerId",
    "check_moment",
    "check_name",
    "check_sequence",
    "check_type_pattern",
    "filter_by_status",
    "fingerprint",
    "from_text",
    "is_event_id",
    "make_failure",
    "new_event_id",
    "new_receipt",
    "parse_source_cursor",
    "seal",
    "to_text",
]
