"""Values for operators: replays, discards, the audit, event details, findings."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from ackbox.model.events import EventId, EventRecord
from ackbox.model.queries import Page


class ReplayKind(StrEnum):
    """The result of a replay for one event (F31)."""

    REPLAYED = "replayed"  # the event was finished; it is pending with all its attempts
    EXPEDITED = "expedited"  # the event waited for a retry; it is due now
    UNPARKED = "unparked"  # the event was parked; it is due now
    WAITING = "waiting"  # no change: the event is pending already
    RUNNING = "running"  # no change: a worker holds the event
    COMPLETED = "completed"  # no change: the replay leaves completed events out
    SPLIT = "split"  # no change: the event is a delivery, and its items are events of their own


class DiscardKind(StrEnum):
    """The result of a discard for one event (N14)."""

    DISCARDED = "discarded"  # the event is completed, and never runs again
    COMPLETED = "completed"  # no change: the event was completed before
    RUNNING = "running"  # no change: a worker holds the event


class Caller(Struct, frozen=True):
    """The caller who requests a change: the name that it gives, and the address it calls from."""

    actor: str
    peer: str | None = None


class AuditEntry(Struct, frozen=True):
    """A change that an operator made. `actor` is the name that the caller gave; `peer` is the
    address it called from, None without HTTP."""

    audit_id: int
    at: datetime
    actor: str
    peer: str | None
    action: str
    event_id: EventId | None
    detail: Mapping[str, Any]


class AuditPage(Struct, frozen=True):
    """Audit entries, newest first; `next` is the cursor of the next page."""

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
    """All that the ledger knows of one event except its payload, for `explain`.

    `claimable_at` is when a worker may claim the event. It is None if the event is finished or
    parked, or if it waits `behind` another event of its lane. If `tombstoned_at` is set, retention
    has written the tombstone and will delete the event soon. `items` are the first events that were
    made from this event: the items of a delivery, and what a handler sent.
    """

    event: EventRecord
    unsettled: int
    claimable_at: datetime | None
    headers: Mapping[str, str]
    errors: Sequence[FailedRun]
    behind: EventRecord | None
    tombstoned_at: datetime | None
    audit: Sequence["AuditEntry"]
    items: Page


class BackupProgress(Struct, frozen=True):
    copied_pages: int
    total_pages: int


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """The result of one check of `ackbox doctor`; unless it is ok, `remedy` says what to do."""

    about: str
    verdict: Verdict
    detail: str
    remedy: str | None = None
