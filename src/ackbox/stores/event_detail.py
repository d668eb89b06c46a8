"""Decisions about the detail of an event and the audit log that both stores share."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.model import (
    AuditEntry,
    AuditPage,
    EventDetail,
    EventRecord,
    FailedRun,
    OutcomeName,
    Page,
    Status,
)
from ackbox.stores.paging import BEYOND

AUDIT_SHOWN = 20
ITEMS_SHOWN = 20


class DetailRow(Struct, frozen=True):
    """The columns of an event that only its detail shows."""

    unsettled: int
    claimable_at: datetime | None
    headers: str | None
    errors: str | None
    tombstoned_at: datetime | None


def read_row(row: Any) -> DetailRow:
    return msgspec.convert(dict(row), DetailRow)


def may_be_behind(event: EventRecord, row: DetailRow) -> bool:
    """Return whether the event may wait for another event of its lane: for an older event or, after
    a replay, for the running event."""
    waits = event.status is Status.PENDING and row.claimable_at is None
    return waits and event.lane is not None and event.outcome != OutcomeName.PARKED


def make_detail(
    event: EventRecord,
    row: DetailRow,
    behind: Sequence[EventRecord],
    audit: AuditPage,
    items: Page,
) -> EventDetail:
    return EventDetail(
        event=event,
        unsettled=row.unsettled,
        claimable_at=row.claimable_at,
        headers=msgspec.json.decode(row.headers or "{}", type=dict[str, str]),
        errors=msgspec.json.decode(row.errors or "[]", type=list[FailedRun]),
        behind=behind[0] if behind else None,
        tombstoned_at=row.tombstoned_at,
        audit=audit.items,
        items=items,
    )


def audit_bounds(limit: int, cursor: int | None) -> dict[str, Any]:
    """Return the bounds of a page of the audit log: one entry more shows whether others follow."""
    return {"limit": limit + 1, "cursor": BEYOND if cursor is None else cursor}


def make_audit_page(rows: Sequence[Any], limit: int) -> AuditPage:
    items = [_entry(row) for row in rows[:limit]]
    return AuditPage(items, items[-1].audit_id if len(rows) > limit else None)


def _entry(row: Any) -> AuditEntry:
    return msgspec.convert({**row, "detail": msgspec.json.decode(row["detail"])}, AuditEntry)
