"""One event with its history, and the audit log."""

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
from ackbox.stores.sqlite.read.pages import read_page, records
from ackbox.stores.sqlite.statements import Statements


def read_detail(sql: Statements, event_id: EventId) -> EventDetail | None:
    events, rows = records(sql, [event_id]), sql.rows("detail", id=event_id)
    if not events or not rows:
        return None
    event, row = events[0], read_row(rows[0])
    behind = _behind(sql, event) if may_be_behind(event, row) else []
    where = EventFilter(parent_id=event_id)
    items = read_page(sql, where, Order.OLDEST, ITEMS_SHOWN, None)
    audit = read_audit(sql, event_id, AUDIT_SHOWN, None)
    return make_detail(event, row, behind, audit, items)


def read_audit(
    sql: Statements, event_id: EventId | None, limit: int, cursor: int | None
) -> AuditPage:
    page = audit_bounds(limit, cursor)
    if event_id is None:
        rows = sql.rows("audit", **page)
    else:
        rows = sql.rows("audit_of_event", **page, event_id=event_id)
    return make_audit_page(rows, limit)


def _behind(sql: Statements, event: EventRecord) -> list[EventRecord]:
    lane = {"source": event.source, "lane": event.lane}
    rows = sql.rows("older_in_lane", **lane, ledger_id=event.ledger_id)
    rows = rows or sql.rows("running_in_lane", **lane)
    return records(sql, [row["id"] for row in rows])
