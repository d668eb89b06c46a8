"""Pages of events. However rare the matching events are, a page reads a bounded number of rows
(L13)."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from ackbox.model import (
    EventFilter,
    EventRecord,
    Order,
    Page,
    SourceCursor,
    SourcePage,
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
from ackbox.stores.sqlite.statements import Statements


def records(sql: Statements, ids: list[str]) -> list[EventRecord]:
    return msgspec.convert(sql.rows("events_by_id", ids=ids), list[EventRecord])


def read_page(
    sql: Statements,
    where: EventFilter,
    order: Order,
    limit: int,
    cursor: int | None,
    *,
    unordered: bool = False,
) -> Page:
    scan = bounds(where, order, limit, cursor)
    parameters = {**_terms(where), **scan, "source": where.source}
    if order is Order.OLDEST:
        parameters["unordered"] = unordered
    rows = sql.rows(f"events_{order}", **parameters)
    return make_page(rows, records(sql, matches(rows)), order, limit, scan["window"])


def read_source_page(
    sql: Statements, where: EventFilter, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """Return first the events with a sequence number or a time from their source, which have an
    index of their own, then the rest in the order of arrival."""
    position = cursor or FIRST_CURSOR
    items: list[EventRecord] = []
    if position < REST:
        items, position = _ordered(sql, where, limit, position)
    if position < REST or len(items) == limit:
        return SourcePage(items, position)
    missing = limit - len(items)
    rest = read_page(sql, where, Order.OLDEST, missing, position.ledger_id, unordered=True)
    return join_rest(items, rest)


def _ordered(
    sql: Statements, where: EventFilter, limit: int, cursor: SourceCursor
) -> tuple[list[EventRecord], SourceCursor]:
    """Return the next matching events, and the cursor behind the rows that were read."""
    scan = {"source": where.source, "window": source_window(limit)}
    rows = sql.rows("events_of_source", **_terms(where), **asdict(cursor), **scan)
    ids, last = take_matches(rows, limit)
    return in_order_of(ids, records(sql, ids)), REST if last is None else _cursor(last)


def _cursor(row: dict[str, Any]) -> SourceCursor:
    return SourceCursor(row["sequence"], row["emitted"], row["ledger_id"])


def _terms(where: EventFilter) -> dict[str, Any]:
    since, until = where.since and to_text(where.since), where.until and to_text(where.until)
    return {**terms(where), "since": since, "until": until}
