"""Pages of events. However rare the matching events are, a page reads a bounded number of rows
(L13)."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ackbox.model import (
    EventFilter,
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
from ackbox.stores.paging import FIRST_CURSOR, REST, bounds, make_page, matches, terms

Run = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
"""A function that runs a named block with these values."""


def records(run: Run, ids: list[str]) -> list[EventRecord]:
    rows = run("events_by_id", {"ids": msgspec.json.encode(ids).decode()})
    return [_event(row) for row in rows]


def read_page(
    run: Run,
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
    rows = run(f"events_{order}", parameters)
    return make_page(rows, records(run, matches(rows)), order, limit, scan["window"])


def read_source_page(
    run: Run, where: EventFilter, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """Return first the events with a sequence number or a time from their source, which have an
    index of their own, then the rest in the order of arrival."""
    position = cursor or FIRST_CURSOR
    items: list[EventRecord] = []
    if position < REST:
        items, position = _ordered(run, where, limit, position)
    if position < REST or len(items) == limit:
        return SourcePage(items, position)
    missing = limit - len(items)
    rest = read_page(run, where, Order.OLDEST, missing, position.ledger_id, unordered=True)
    following = None if rest.next is None else replace(REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], following)


def _ordered(
    run: Run, where: EventFilter, limit: int, cursor: SourceCursor
) -> tuple[list[EventRecord], SourceCursor]:
    """Return the next matching events, and the cursor behind the rows that were read."""
    window = max(paging.SOURCE_WINDOW, limit)
    parameters = {**_terms(where), **asdict(cursor), "source": where.source, "window": window}
    rows = run("events_of_source", parameters)
    ids: list[str] = []
    last = REST
    for *position, event_id, is_match in rows:
        if is_match:
            ids.append(event_id)
        if len(rows) == window or len(ids) == limit:
            last = SourceCursor(*position)
        if len(ids) == limit:
            break
    by_id = {str(event.id): event for event in records(run, ids)}
    return [by_id[event_id] for event_id in ids if event_id in by_id], last


def _terms(where: EventFilter) -> dict[str, Any]:
    since, until = where.since and to_text(where.since), where.until and to_text(where.until)
    return {**terms(where), "since": since, "until": until}


def _event(row: tuple[Any, ...]) -> EventRecord:
    fields = dict(zip(EventRecord.__struct_fields__, row, strict=True))
    fields["status"] = Status(fields["status"])
    for name in ("created_at", "updated_at", "last_seen_at"):
        fields[name] = from_text(fields[name])
    for name in ("retry_after", "lease_until", "source_emitted_at", "processed_at"):
        fields[name] = fields[name] and from_text(fields[name])
    return EventRecord(**fields)
