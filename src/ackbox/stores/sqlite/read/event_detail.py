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
from ackbox.stores.sqlite.read.pages import Run, records

_AUDIT_SHOWN = 20


def read_detail(run: Run, event_id: EventId) -> EventDetail | None:
    events, rows = records(run, [event_id]), run("detail", {"id": event_id})
    if not events or not rows:
        return None
    unsettled, claimable_at, headers, errors, tombstoned_at = rows[0]
    return EventDetail(
        event=events[0],
        unsettled=unsettled,
        claimable_at=claimable_at and from_text(claimable_at),
        headers=msgspec.json.decode(headers or "{}", type=dict[str, str]),
        errors=msgspec.json.decode(errors or "[]", type=list[FailedRun]),
        behind=_behind(run, events[0]) if claimable_at is None else None,
        tombstoned_at=tombstoned_at and from_text(tombstoned_at),
        audit=read_audit(run, event_id, _AUDIT_SHOWN, None).items,
    )


def read_audit(run: Run, event_id: EventId | None, limit: int, cursor: int | None) -> AuditPage:
    parameters: dict[str, Any] = {
        "limit": limit + 1,
        "cursor": BEYOND if cursor is None else cursor,
    }
    if event_id is None:
        rows = run("audit", parameters)
    else:
        rows = run("audit_of_event", {**parameters, "event_id": event_id})
    items = [_entry(row) for row in rows[:limit]]
    return AuditPage(items, items[-1].audit_id if len(rows) > limit else None)


def _behind(run: Run, event: EventRecord) -> EventRecord | None:
    """Return the event that a pending event of a lane waits for: an older event, or, after a
    replay, the running one."""
    if event.lane is None or event.status is not Status.PENDING or event.outcome == "parked":
        return None
    lane = {"source": event.source, "lane": event.lane}
    rows = run("older_in_lane", {**lane, "ledger_id": event.ledger_id})
    rows = rows or run("running_in_lane", lane)
    events = records(run, [row[0] for row in rows])
    return events[0] if events else None


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    number, at, actor, peer, action, event_id, detail = row
    details = msgspec.json.decode(detail, type=dict[str, Any])
    return AuditEntry(number, from_text(at), actor, peer, action, event_id, details)
