"""Lists of events, a page at a time: however rare what is asked for, a page looks at a bounded
number of rows (L13)."""

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
"""Runs a named block with these values."""


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
    asked = bounds(where, order, limit, cursor)
    question = {**_terms(where), **asked, "source": where.source}
    if order is Order.OLDEST:
        question["unordered"] = unordered
    rows = run(f"events_{order}", question)
    return make_page(rows, records(run, matches(rows)), order, limit, asked["window"])


def read_source_page(
    run: Run, where: EventFilter, limit: int, cursor: SourceCursor | None
) -> SourcePage:
    """First those with a number or a time of their source's, by an index of only these; then the
    rest, by arrival."""
    place = cursor or FIRST_CURSOR
    items: list[EventRecord] = []
    if place < REST:
        items, place = _ordered(run, where, limit, place)
    if place < REST or len(items) == limit:
        return SourcePage(items, place)
    wanted = limit - len(items)
    rest = read_page(run, where, Order.OLDEST, wanted, place.ledger_id, unordered=True)
    further = None if rest.next is None else replace(REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], further)


def _ordered(
    run: Run, where: EventFilter, limit: int, place: SourceCursor
) -> tuple[list[EventRecord], SourceCursor]:
    """The next few, and the place behind what was looked at."""
    window = max(paging.SOURCE_WINDOW, limit)
    question = {**_terms(where), **asdict(place), "source": where.source, "window": window}
    rows = run("events_of_source", question)
    found: list[str] = []
    last = REST
    for *at, event_id, is_match in rows:
        if is_match:
            found.append(event_id)
        if len(rows) == window or len(found) == limit:
            last = SourceCursor(*at)
        if len(found) == limit:
            break
    by_id = {str(event.id): event for event in records(run, found)}
    return [by_id[one] for one in found if one in by_id], last


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
