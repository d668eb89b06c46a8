"""Lists of events, page by page. A page reads a bounded number of rows, however few of them match
(L13)."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from ackbox.model import (
    LAST_MOMENT,
    EventFilter,
    EventRecord,
    Order,
    Page,
    SourceCursor,
    SourcePage,
    from_text,
    to_text,
)
from ackbox.stores.paging import (
    FIRST_CURSOR,
    REST,
    bounds,
    in_order_of,
    join_rest,
    make_page,
    matches,
    source_window,
    take_matches,
    terms,
)
from ackbox.stores.postgres.database import Session
from ackbox.stores.postgres.read.read_horizon import last_readable

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


async def records(session: Session, ids: list[str]) -> list[EventRecord]:
    rows = await session.fetch("events_by_id", ids=ids)
    return msgspec.convert([dict(row) for row in rows], list[EventRecord])


async def read_page(
    session: Session,
    where: EventFilter,
    order: Order,
    limit: int,
    cursor: int | None,
    *,
    unordered: bool = False,
) -> Page:
    scan = bounds(where, order, limit, cursor)
    parameters = {**terms(where), **scan, "source": where.source}
    if order is Order.OLDEST:
        parameters |= {"unordered": unordered, "last_readable": await last_readable(session)}
    rows = await session.fetch(f"events_{order}", **parameters)
    events = await records(session, matches(rows))
    return make_page(rows, events, order, limit, scan["window"])


async def read_source_page(
    session: Session, where: EventFilter, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """Read first the events that have a sequence or a time of their source, by an index of only
    these events; then all other events, in arrival order."""
    start = cursor or FIRST_CURSOR
    items: list[EventRecord] = []
    if start < REST:
        items, start = await _ordered(session, where, limit, start)
    if start < REST or len(items) == limit:
        return SourcePage(items, start)
    wanted = limit - len(items)
    rest = await read_page(session, where, Order.OLDEST, wanted, start.ledger_id, unordered=True)
    return join_rest(items, rest)


async def _ordered(
    session: Session, where: EventFilter, limit: int, start: SourceCursor
) -> tuple[list[EventRecord], SourceCursor]:
    """Return the next matching events, and the cursor after the last row that was read."""
    rows = await session.fetch(
        "events_of_source",
        **terms(where),
        sequence=start.sequence,
        emitted_at=_moment(start.emitted_at),
        ledger_id=start.ledger_id,
        source=where.source,
        window=source_window(limit),
    )
    ids, last = take_matches(rows, limit)
    events = in_order_of(ids, await records(session, ids))
    return events, REST if last is None else _cursor(last)


def _cursor(row: Any) -> SourceCursor:
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
