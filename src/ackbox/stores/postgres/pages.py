"""Lists of events, a page at a time: however rare what is asked for, a page looks at a bounded
number of rows (L13)."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ackbox.model import (
    LAST_MOMENT,
    LAST_SEQUENCE,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Page,
    SourcePage,
    SourcePlace,
    Status,
    from_text,
    to_text,
)
from ackbox.stores.postgres.database import Session
from ackbox.stores.postgres.doors import last_readable

WINDOW = 10_000
_SOURCE_WINDOW = 1000
BEYOND = 1 << 62
_INDEXED = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})
_FIRST_PLACE = SourcePlace(-(1 << 63), "", 0)
_REST = SourcePlace(LAST_SEQUENCE, LAST_MOMENT, 0)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


async def records(session: Session, ids: list[str]) -> list[EventRecord]:
    return [_event(row) for row in await session.fetch("events_by_id", ids=ids)]


async def read_page(
    session: Session,
    where: EventFilter,
    order: Order,
    limit: int,
    cursor: int | None,
    *,
    unordered: bool = False,
) -> Page:
    """A filter that an index serves needs to look at no more rows than it returns."""
    exact = where == EventFilter(status=where.status) and where.status in {None, *_INDEXED}
    start = BEYOND if order is Order.NEWEST else 0
    question = {
        **_terms(where),
        "source": where.source,
        "scan": where.status if where.status in _INDEXED else "all",
        "cursor": start if cursor is None else cursor,
        "window": limit if exact else max(WINDOW, limit),
        "limit": limit,
    }
    if order is Order.OLDEST:
        question |= {"unordered": unordered, "last_readable": await last_readable(session)}
    return await _page(session, f"events_{order}", question)


async def read_source_page(
    session: Session, where: EventFilter, limit: int, cursor: SourcePlace | None
) -> SourcePage:
    """First those with a number or a time of their source's, by an index of only these; then the
    rest, by arrival."""
    place = cursor or _FIRST_PLACE
    items: list[EventRecord] = []
    if place < _REST:
        items, place = await _ordered(session, where, limit, place)
    if place < _REST or len(items) == limit:
        return SourcePage(items, place)
    wanted = limit - len(items)
    rest = await read_page(session, where, Order.OLDEST, wanted, place.ledger_id, unordered=True)
    further = None if rest.next is None else replace(_REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], further)


async def _page(session: Session, block: str, question: dict[str, Any]) -> Page:
    rows = await session.fetch(block, **question)
    found = [row["id"] for row in rows if row["id"] is not None]
    items = await records(session, found)  # fewer, if some were pruned in between
    items.sort(key=lambda event: event.ledger_id, reverse=block == "events_newest")
    if len(found) == question["limit"]:
        return Page(items, rows[-1]["ledger_id"])
    return Page(items, rows[-1]["edge"] if rows[-1]["rows"] == question["window"] else None)


async def _ordered(
    session: Session, where: EventFilter, limit: int, place: SourcePlace
) -> tuple[list[EventRecord], SourcePlace]:
    """The next few, and the place behind what was looked at."""
    window = max(_SOURCE_WINDOW, limit)
    rows = await session.fetch(
        "events_of_source",
        **_terms(where),
        sequence=place.sequence,
        emitted_at=_moment(place.emitted_at),
        ledger_id=place.ledger_id,
        source=where.source,
        window=window,
    )
    found: list[str] = []
    last = _REST
    for row in rows:
        if row["matches"]:
            found.append(row["id"])
        if len(rows) == window or len(found) == limit:
            last = _place(row)
        if len(found) == limit:
            break
    by_id = {str(event.id): event for event in await records(session, found)}
    return [by_id[one] for one in found if one in by_id], last


def _place(row: Any) -> SourcePlace:
    emitted = row["emitted"]
    text = LAST_MOMENT if emitted is None else to_text(emitted)
    return SourcePlace(row["sequence"], text, row["ledger_id"])


def _moment(text: str) -> datetime:
    if text == LAST_MOMENT:
        return _LATEST
    try:
        return from_text(text) if text else _EARLIEST
    except ValueError:
        return _EARLIEST


def _terms(where: EventFilter) -> dict[str, Any]:
    return {
        "status": where.status,
        "retrying": where.retrying,
        "event_type": where.event_type,
        "since": where.since,
        "until": where.until,
        "outcome": where.outcome,
        "error_code": where.error_code,
        "lane": where.lane,
    }


def _event(row: Any) -> EventRecord:
    values = dict(row)
    values["id"] = EventId(values["id"])
    values["status"] = Status(values["status"])
    return EventRecord(**values)
