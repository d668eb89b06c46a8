"""The response models of the operator routes."""

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints
from uuid import UUID

from msgspec.structs import asdict
from pydantic import BaseModel, create_model

from ackbox.maintenance import Preview
from ackbox.model import (
    AuditEntry,
    AuditPage,
    EventDetail,
    EventId,
    EventRecord,
    FailedRun,
    Page,
    SourcePage,
    Stats,
    Status,
    to_text,
)

_TYPES_IN_JSON = {EventId: UUID, Status: str, datetime: str}


def _type_in_json(annotation: Any) -> Any:
    """Return the type in which JSON shows a field of `EventRecord`."""
    members = get_args(annotation) or (annotation,)
    return reduce(or_, [_TYPES_IN_JSON.get(member, member) for member in members])


# Derived from `EventRecord`, so that a new column needs no change here.
if TYPE_CHECKING:

    class EventItem(BaseModel): ...

else:
    EventItem = create_model(
        "EventItem",
        __doc__="One event without its payload.",
        __module__=__name__,
        **{name: _type_in_json(hint) for name, hint in get_type_hints(EventRecord).items()},
    )


class EventList(BaseModel):
    items: list[EventItem]
    next: str | None

    @classmethod
    def of(cls, page: Page) -> Self:
        items = [EventItem(**_to_json(event)) for event in page.items]
        return cls(items=items, next=None if page.next is None else str(page.next))

    @classmethod
    def of_source(cls, page: SourcePage) -> Self:
        items = [EventItem(**_to_json(event)) for event in page.items]
        return cls(items=items, next=None if page.next is None else str(page.next))


class FailedRunItem(BaseModel):
    at: str
    attempt: int
    run: int
    code: str
    error: str
    traceback: str | None


class AuditItem(BaseModel):
    audit_id: int
    at: str
    actor: str
    peer: str | None
    action: str
    event_id: UUID | None
    detail: Mapping[str, Any]


class EventDetailResponse(EventItem):
    """One event with its history, without its payload.

    `claimable_at`: when a worker may claim the event, or claim it from another worker. `behind`:
    the event of its lane that this event waits for. `tombstoned_at`: retention deletes this event a
    minute or more after this time. `items`: the first events that were made from this event; the
    list of events with `parent` and `order=oldest` has all of them.
    """

    unsettled: int
    claimable_at: str | None
    headers: Mapping[str, str]
    errors: list[FailedRunItem]
    behind: EventItem | None
    tombstoned_at: str | None
    audit: list[AuditItem]
    items: EventList

    @classmethod
    def of(cls, detail: EventDetail) -> Self:
        return cls(
            **_to_json(detail.event),
            unsettled=detail.unsettled,
            claimable_at=_text(detail.claimable_at),
            headers=detail.headers,
            errors=[FailedRunItem(**_to_json(run)) for run in detail.errors],
            behind=EventItem(**_to_json(detail.behind)) if detail.behind else None,
            tombstoned_at=_text(detail.tombstoned_at),
            audit=[AuditItem(**_to_json(entry)) for entry in detail.audit],
            items=EventList.of(detail.items),
        )


class AuditResponse(BaseModel):
    items: list[AuditItem]
    next: str | None

    @classmethod
    def of(cls, page: AuditPage) -> Self:
        items = [AuditItem(**_to_json(entry)) for entry in page.items]
        return cls(items=items, next=None if page.next is None else str(page.next))


class ReplayResponse(BaseModel):
    """`did` is `replayed`, `expedited` or `unparked`; `waiting` means that nothing was changed."""

    id: UUID
    did: str


class DiscardResponse(BaseModel):
    """`did` is `discarded`; `completed` means that nothing was changed."""

    id: UUID
    did: str


class GroupItem(BaseModel):
    event_type: str
    error_code: str | None
    events: int


class PreviewResponse(BaseModel):
    """The events that match the filter of a replay or a discard."""

    dry_run: bool = True
    events: int
    groups: list[GroupItem]

    @classmethod
    def of(cls, preview: Preview) -> Self:
        groups = [GroupItem(**asdict(group)) for group in preview.groups]
        return cls(events=preview.events, groups=groups)


class ProgressLine(BaseModel):
    """The progress of a replay or a discard by filter. The last line has `done`."""

    seen: int
    changed: int
    done: bool = False


class ErrorLine(BaseModel):
    """The last line, if an error ended the replay or the discard."""

    error: str


class StatsResponse(BaseModel):
    events: dict[str, int]
    oldest_pending_at: str | None
    oldest_pending_seconds: float

    @classmethod
    def of(cls, stats: Stats, now: datetime) -> Self:
        return cls(
            events={str(status): count for status, count in stats.counts.items()},
            oldest_pending_at=_text(stats.oldest_pending),
            oldest_pending_seconds=stats.lag(now).total_seconds(),
        )


def _to_json(value: EventRecord | FailedRun | AuditEntry) -> dict[str, Any]:
    return {
        name: to_text(field) if isinstance(field, datetime) else field
        for name, field in asdict(value).items()
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)
