"""Decisions about pages that both stores share: how many rows to read, and where the next page
begins."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ackbox.model import (
    LAST_MOMENT,
    LAST_SEQUENCE,
    EventFilter,
    EventRecord,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    Status,
)

WINDOW = 10_000
SOURCE_WINDOW = 1000
BEYOND = 1 << 62
FIRST_CURSOR = SourceCursor(-(1 << 63), "", 0)
REST = SourceCursor(LAST_SEQUENCE, LAST_MOMENT, 0)
_INDEXED = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})


def bounds(where: EventFilter, order: Order, limit: int, cursor: int | None) -> dict[str, Any]:
    """Return the bounds of the scan. If an index serves the filter exactly, the scan reads no more
    rows than it returns."""
    by_status = where == EventFilter(status=where.status) and where.status in {None, *_INDEXED}
    exact = by_status or where == EventFilter(parent_id=where.parent_id)
    start = BEYOND if order is Order.NEWEST else 0
    return {
        "scan": _scan(where),
        "cursor": start if cursor is None else cursor,
        "window": limit if exact else max(WINDOW, limit),
        "limit": limit,
    }


def _scan(where: EventFilter) -> str:
    """Return the name of the branch that reads the fewest rows: its index serves the filter."""
    if where.parent_id is not None:
        return "parent"
    return where.status if where.status in _INDEXED else "all"


def terms(where: EventFilter) -> dict[str, Any]:
    prefix, star, _ = (where.event_type or "").partition("*")
    return {
        "status": where.status,
        "skip_completed": where.skip_completed,
        "retrying": where.retrying,
        "event_type": None if star else where.event_type,
        "type_prefix": prefix if star else None,
        "since": where.since,
        "until": where.until,
        "outcome": where.outcome,
        "error_code": where.error_code,
        "lane": where.lane,
        "parent_id": where.parent_id,
    }


def make_page(
    rows: Sequence[Any], items: list[EventRecord], order: Order, limit: int, window: int
) -> Page:
    """Make a page. The `rows` say how many rows were read, which of them was the last, and which
    events match; `items` are the events that match. There are fewer items than matches if some
    events were pruned in between."""
    last = rows[-1]
    items.sort(key=lambda event: event.ledger_id, reverse=order is Order.NEWEST)
    if len(matches(rows)) == limit:
        return Page(items, last["ledger_id"])
    return Page(items, last["edge"] if last["rows"] == window else None)


def matches(rows: Sequence[Any]) -> list[str]:
    return [row["id"] for row in rows if row["id"] is not None]


def source_window(limit: int) -> int:
    """Return how many rows a page in the order of a source reads at most."""
    return max(SOURCE_WINDOW, limit)


def take_matches(rows: Sequence[Any], limit: int) -> tuple[list[str], Any | None]:
    """Return the ids of the rows that match, and the row after which the next page begins. There is
    none if these are the last rows of the source."""
    ids: list[str] = []
    for row in rows:
        if row["matches"]:
            ids.append(row["id"])
        if len(ids) == limit:
            return ids, row
    return ids, rows[-1] if len(rows) == source_window(limit) else None


def in_order_of(ids: Sequence[str], events: Sequence[EventRecord]) -> list[EventRecord]:
    """Sort the events like their ids. Some events may have been pruned in between."""
    by_id = {str(event.id): event for event in events}
    return [by_id[event_id] for event_id in ids if event_id in by_id]


def join_rest(items: Sequence[EventRecord], rest: Page) -> SourcePage:
    """Add the events that have neither a number nor a time of their source: they come last."""
    following = None if rest.next is None else replace(REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], following)
