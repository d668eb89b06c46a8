"""Lists of events, a page at a time: however rare what is asked for, a page looks at a bounded
number of rows (L13)."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ackbox.model import (
    LAST_MOMENT,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    Status,
    from_text,
    to_text,
)
from ackbox.stores import paging
from ackbox.stores.paging import FIRST_PLACE, REST, bounds, make_page, matches, terms
from ackbox.stores.postgres.database import Session
from ackbox.stores.postgres.read_horizon import last_readable

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
    asked = bounds(where, order, limit, cursor)
    question = {**terms(where), **asked, "source": where.source}
    if order is Order.OLDEST:
        question |= {"unordered": unordered, "last_readable": await last_readable(session)}
    rows = await session.fetch(f"events_{order}", **question)
    found = await records(session, matches(rows))
    return make_page(rows, found, order, limit, asked["window"])


async def read_source_page(
    session: Session, where: EventFilter, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """First those with a number or a time of their source's, by an index of only these; then the
    rest, by arrival."""
    place = cursor or FIRST_PLACE
    items: list[EventRecord] = []
    if place < REST:
        items, place = await _ordered(session, where, limit, place)
    if place < REST or len(items) == limit:
        return SourcePage(items, place)
    wanted = limit - len(items)
    rest = await read_page(session, where, Order.OLDEST, wanted, place.ledger_id, unordered=True)
    further = None if rest.next is None else replace(REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], further)


async def _ordered(
    session: Session, where: EventFilter, limit: int, place: SourceCursor
) -> tuple[list[EventRecord], SourceCursor]:
    """The next few, and the place behind what was looked at."""
    window = max(paging.SOURCE_WINDOW, limit)
    rows = await session.fetch(
        "events_of_source",
        **terms(where),
        sequence=place.sequence,
        emitted_at=_moment(place.emitted_at),
        ledger_id=place.ledger_id,
        source=where.source,
        window=window,
    )
    found: list[str] = []
    last = REST
    for row in rows:
        if row["matches"]:
            found.append(row["id"])
        if len(rows) == window or len(found) == limit:
            last = _place(row)
        if len(found) == limit:
            break
    by_id = {str(event.id): event for event in await records(session, found)}
    return [by_id[one] for one in found if one in by_id], last


def _place(row: Any) -> SourceCursor:
    emitted = row["emitted"]
    text = LAST_MOMENT if emitted is None else to_text(emitted)
    return SourceCursor(row["sequence"], text, row["ledger_id"])


def _moment(text: str) -> datetime:
    if text == LAST_MOMENT:
        return _LATEST
    try:
        return from_text(text) if text else _EARLIEST
    except ValueError:
        return _EARLIEST


def _event(row: Any) -> EventRecord:
    values = dict(row)
    values["id"] = EventId(values["id"])
    values["status"] = Status(values["status"])
    return EventRecord(**values)
