"""One event with its history, and the audit log."""

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
    from_text,
)
from ackbox.stores.paging import BEYOND
from ackbox.stores.sqlite.read.pages import records
from ackbox.stores.sqlite.statements import Statements

_AUDIT_SHOWN = 20


def read_detail(sql: Statements, event_id: EventId) -> EventDetail | None:
    events, rows = records(sql, [event_id]), sql.rows("detail", id=event_id)
    if not events or not rows:
        return None
    row = rows[0]
    claimable_at, tombstoned_at = row["claimable_at"], row["tombstoned_at"]
    return EventDetail(
        event=events[0],
        unsettled=row["unsettled"],
        claimable_at=claimable_at and from_text(claimable_at),
        headers=msgspec.json.decode(row["headers"] or "{}", type=dict[str, str]),
        errors=msgspec.json.decode(row["errors"] or "[]", type=list[FailedRun]),
        behind=_behind(sql, events[0]) if claimable_at is None else None,
        tombstoned_at=tombstoned_at and from_text(tombstoned_at),
        audit=read_audit(sql, event_id, _AUDIT_SHOWN, None).items,
    )


def read_audit(
    sql: Statements, event_id: EventId | None, limit: int, cursor: int | None
) -> AuditPage:
    parameters: dict[str, Any] = {
        "limit": limit + 1,
        "cursor": BEYOND if cursor is None else cursor,
    }
    if event_id is None:
        rows = sql.rows("audit", **parameters)
    else:
        rows = sql.rows("audit_of_event", **parameters, event_id=event_id)
    items = [_entry(row) for row in rows[:limit]]
    return AuditPage(items, items[-1].audit_id if len(rows) > limit else None)


def _behind(sql: Statements, event: EventRecord) -> EventRecord | None:
    """Return the event that a pending event of a lane waits for: an older event or, after a replay,
    the running event."""
    if event.lane is None or event.status is not Status.PENDING or event.outcome == "parked":
        return None
    lane = {"source": event.source, "lane": event.lane}
    rows = sql.rows("older_in_lane", **lane, ledger_id=event.ledger_id)
    rows = rows or sql.rows("running_in_lane", **lane)
    events = records(sql, [row["id"] for row in rows])
    return events[0] if events else None


def _entry(row: dict[str, Any]) -> AuditEntry:
    return msgspec.convert({**row, "detail": msgspec.json.decode(row["detail"])}, AuditEntry)
