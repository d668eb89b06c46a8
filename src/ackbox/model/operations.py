"""What operators do and see: replays and discards, their audit, the story of an event, findings."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from ackbox.model.events import EventId, EventRecord


class ReplayKind(StrEnum):
    """What a replay did to an event (F31)."""

    REPLAYED = "replayed"  # it was finished; now it is pending, with all its attempts
    EXPEDITED = "expedited"  # it waited for a retry; now it is due
    UNPARKED = "unparked"  # it was held for want of a handler; now it is due
    WAITING = "waiting"  # nothing: it is pending already
    RUNNING = "running"  # nothing: a worker holds it
    COMPLETED = "completed"  # nothing: it is completed, and completed events were not asked for


class DiscardKind(StrEnum):
    """What a discard did to an event (N14)."""

    DISCARDED = "discarded"  # the event is completed, and never runs
    COMPLETED = "completed"  # nothing: the event was completed before
    RUNNING = "running"  # nothing: a worker holds the event


class Caller(Struct, frozen=True):
    """Who asks for a change: the name the caller gives, and the address the caller calls from."""

    actor: str
    peer: str | None = None


class AuditEntry(Struct, frozen=True):
    """Something an operator did: `actor` is who the caller says it is, `peer` the address that it
    called from, None without HTTP."""

    audit_id: int
    at: datetime
    actor: str
    peer: str | None
    action: str
    event_id: EventId | None
    detail: Mapping[str, Any]


class AuditPage(Struct, frozen=True):
    """What operators did, newest first, and the place to go on from."""

    items: Sequence[AuditEntry]
    next: int | None


class FailedRun(Struct, frozen=True):
    at: datetime
    attempt: int
    run: int
    code: str
    error: str
    traceback: str | None = None


class EventDetail(Struct, frozen=True):
    """All that is known of one event but its payload: what `explain` tells from.

    `claimable_at` is when a worker may take it; None: it is finished, held, or `behind` another of
    its lane. `tombstoned_at`: retention has marked it, and will delete it soon.
    """

    event: EventRecord
    unsettled: int
    claimable_at: datetime | None
    headers: Mapping[str, str]
    errors: Sequence[FailedRun]
    behind: EventRecord | None
    tombstoned_at: datetime | None
    audit: Sequence["AuditEntry"]


class BackupProgress(Struct, frozen=True):
    copied_pages: int
    total_pages: int


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """What `ackbox doctor` says of one thing; unless all is well, `remedy` says what to do."""

    about: str
    verdict: Verdict
    detail: str
    remedy: str | None = None
