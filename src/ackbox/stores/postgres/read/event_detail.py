"""One event with its history, and the audit log of what operators did."""

from typing import Any

import msgspec

from ackbox.model import (
    AuditEntry,
    AuditPage,
    EventDetail,
    EventId,
    EventRecord,
    FailedRun,
    Status,
)
from ackbox.stores.paging import BEYOND
from ackbox.stores.postgres.database import Session
from ackbox.stores.postgres.read.pages import records

_AUDIT_SHOWN = 20


async def read_detail(session: Session, event_id: EventId) -> EventDetail | None:
    events = await records(session, [event_id])
    row = await session.fetch_one("detail", id=event_id)
    if not events or row is None:
        return None
    claimable_at = row["claimable_at"]
    return EventDetail(
        event=events[0],
        unsettled=row["unsettled"],
        claimable_at=claimable_at,
        headers=msgspec.json.decode(row["headers"] or "{}", type=dict[str, str]),
        errors=msgspec.json.decode(row["errors"] or "[]", type=list[FailedRun]),
        behind=await _behind(session, events[0]) if claimable_at is None else None,
        tombstoned_at=row["tombstoned_at"],
        audit=(await read_audit(session, event_id, _AUDIT_SHOWN, None)).items,
    )


async def read_audit(
    session: Session, event_id: EventId | None, limit: int, cursor: int | None
) -> AuditPage:
    page: dict[str, Any] = {"limit": limit + 1, "cursor": BEYOND if cursor is None else cursor}
    if event_id is None:
        rows = await session.fetch("audit", **page)
    else:
        rows = await session.fetch("audit_of_event", **page, event_id=event_id)
    items = [_entry(row) for row in rows[:limit]]
    return AuditPage(items, items[-1].audit_id if len(rows) > limit else None)


async def _behind(session: Session, event: EventRecord) -> EventRecord | None:
    """Return the event of the same lane that a pending event waits for: an older event or, if the
    pending event was replayed, the running event."""
    if event.lane is None or event.status is not Status.PENDING or event.outcome == "parked":
        return None
    lane = {"source": event.source, "lane": event.lane}
    rows = await session.fetch("older_in_lane", **lane, ledger_id=event.ledger_id)
    rows = rows or await session.fetch("running_in_lane", **lane)
    events = await records(session, [row["id"] for row in rows])
    return events[0] if events else None


def _entry(row: Any) -> AuditEntry:
    return msgspec.convert({**row, "detail": msgspec.json.decode(row["detail"])}, AuditEntry)
