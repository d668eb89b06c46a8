"""The values everything else speaks of: pure, immutable, without a clock or any I/O.

checks     what a source may say of an event
claims     the right to run an event, and what a run came to
events     what a source hands over, and the durable row that it becomes
moments    times, as text and as an instant
operating  what operators do and see: replays, discards, the audit, the story of an event, findings
reading    questions to the ledger, and their answers a page at a time
retention  how long events are kept, and how far a pass came

Others import from here, not from the parts.
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
    SUSPECT,
    TRACEBACK_LIMIT,
    Again,
    Buried,
    Caps,
    Claim,
    Done,
    Failure,
    Outcome,
    Release,
    Settlement,
    Snoozed,
    Statement,
    Suspect,
    WorkerId,
    make_failure,
)
from ackbox.model.events import (
    Checkpoint,
    Content,
    Envelope,
    EventId,
    EventRecord,
    OutcomeName,
    RandomBits,
    Receipt,
    ReceiptKind,
    Status,
    fingerprint,
    new_event_id,
)
from ackbox.model.moments import (
    Clock,
    from_text,
    to_text,
)
from ackbox.model.operating import (
    AuditEntry,
    AuditPage,
    BackupProgress,
    Caller,
    DiscardKind,
    EventStory,
    FailedRun,
    Finding,
    ReplayKind,
    Verdict,
)
from ackbox.model.reading import (
    LAST_MOMENT,
    LAST_SEQUENCE,
    PLACE_PATTERN,
    EventFilter,
    Order,
    Page,
    SourcePage,
    SourcePlace,
    Stats,
    check_type_pattern,
    filter_by_status,
    parse_place,
)
from ackbox.model.retention import (
    Removed,
    RetentionPolicy,
    Walk,
)

__all__ = [
    "CRASHED",
    "ERROR_LIMIT",
    "LAST_MOMENT",
    "LAST_SEQUENCE",
    "NAME_LIMIT",
    "PLACE_PATTERN",
    "SUSPECT",
    "TRACEBACK_LIMIT",
    "Again",
    "AuditEntry",
    "AuditPage",
    "BackupProgress",
    "Buried",
    "Caller",
    "Caps",
    "Checkpoint",
    "Claim",
    "Clock",
    "Content",
    "DiscardKind",
    "Done",
    "Envelope",
    "EventFilter",
    "EventId",
    "EventRecord",
    "EventStory",
    "FailedRun",
    "Failure",
    "Finding",
    "Order",
    "Outcome",
    "OutcomeName",
    "Page",
    "RandomBits",
    "Receipt",
    "ReceiptKind",
    "Release",
    "Removed",
    "ReplayKind",
    "RetentionPolicy",
    "Settlement",
    "Snoozed",
    "SourcePage",
    "SourcePlace",
    "Statement",
    "Stats",
    "Status",
    "Suspect",
    "Verdict",
    "Walk",
    "WorkerId",
    "check_moment",
    "check_name",
    "check_sequence",
    "check_type_pattern",
    "filter_by_status",
    "fingerprint",
    "from_text",
    "make_failure",
    "new_event_id",
    "parse_place",
    "to_text",
]
