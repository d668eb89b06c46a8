"""One event with its history, and the audit log of what operators did."""

from ackbox.model import AuditPage, EventDetail, EventFilter, EventId, EventRecord, Order
from ackbox.stores.event_detail import (
    AUDIT_SHOWN,
    ITEMS_SHOWN,
    audit_bounds,
    make_audit_page,
    make_detail,
    may_be_behind,
    read_row,
)
from ackbox.stores.postgres.database import Session
from ackbox.stores.postgres.read.pages import read_page, records


async def read_detail(session: Session, event_id: EventId) -> EventDetail | None:
    events = await records(session, [event_id])
    rows = await session.fetch("detail", id=event_id)
    if not events or not rows:
        return None
    event, row = events[0], read_row(rows[0])
    behind = await _behind(session, event) if may_be_behind(event, row) else []
    where = EventFilter(parent_id=event_id)
    items = await read_page(session, where, Order.OLDEST, ITEMS_SHOWN, None)
    audit = await read_audit(session, event_id, AUDIT_SHOWN, None)
    return make_detail(event, row, behind, audit, items)


async def read_audit(
    session: Session, event_id: EventId | None, limit: int, cursor: int | None
) -> AuditPage:
    page = audit_bounds(limit, cursor)
    if event_id is None:
        rows = await session.fetch("audit", **page)
    else:
        rows = await session.fetch("audit_of_event", **page, event_id=event_id)
    return make_audit_page(rows, limit)


async def _behind(session: Session, event: EventRecord) -> list[EventRecord]:
    lane = {"source": event.source, "lane": event.lane}
    rows = await session.fetch("older_in_lane", **lane, ledger_id=event.ledger_id)
    rows = rows or await session.fetch("running_in_lane", **lane)
    return await records(session, [row["id"] for row in rows])
