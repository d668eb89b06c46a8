"""Lists of events, a page at a time: however rare what is asked for, a page looks at a bounded
number of rows (L13)."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ackbox.model import (
    LAST_MOMENT,
    LAST_SEQUENCE,
    EventFilter,
    EventRecord,
    Order,
    Page,
    SourcePage,
    SourcePlace,
    Status,
    from_text,
    to_text,
)

Run = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
"""Runs a named block with these values."""

WINDOW = 10_000
_SOURCE_WINDOW = 1000
BEYOND = 1 << 62
_INDEXED = frozenset({Status.PENDING, Status.PROCESSING, Status.FAILED})
_FIRST_PLACE = SourcePlace(-(1 << 63), "", 0)
_REST = SourcePlace(LAST_SEQUENCE, LAST_MOMENT, 0)


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
        question["unordered"] = unordered
    return _page(run, f"events_{order}", question)


def read_source_page(
    run: Run, where: EventFilter, limit: int, cursor: SourcePlace | None
) -> SourcePage:
    """First those with a number or a time of their source's, by an index of only these; then the
    rest, by arrival."""
    place = cursor or _FIRST_PLACE
    items: list[EventRecord] = []
    if place < _REST:
        items, place = _ordered(run, where, limit, place)
    if place < _REST or len(items) == limit:
        return SourcePage(items, place)
    wanted = limit - len(items)
    rest = read_page(run, where, Order.OLDEST, wanted, place.ledger_id, unordered=True)
    further = None if rest.next is None else replace(_REST, ledger_id=rest.next)
    return SourcePage([*items, *rest.items], further)


def _page(run: Run, block: str, question: dict[str, Any]) -> Page:
    rows = run(block, question)
    seen, edge, last, _ = rows[-1]
    found = [row[3] for row in rows if row[3] is not None]
    items = records(run, found)  # fewer, if some were pruned in between
    items.sort(key=lambda event: event.ledger_id, reverse=block == "events_newest")
    if len(found) == question["limit"]:
        return Page(items, last)
    return Page(items, edge if seen == question["window"] else None)


def _ordered(
    run: Run, where: EventFilter, limit: int, place: SourcePlace
) -> tuple[list[EventRecord], SourcePlace]:
    """The next few, and the place behind what was looked at."""
    window = max(_SOURCE_WINDOW, limit)
    question = {**_terms(where), **asdict(place), "source": where.source, "window": window}
    rows = run("events_of_source", question)
    found: list[str] = []
    last = _REST
    for *at, event_id, matches in rows:
        if matches:
            found.append(event_id)
        if len(rows) == window or len(found) == limit:
            last = SourcePlace(*at)
        if len(found) == limit:
            break
    by_id = {str(event.id): event for event in records(run, found)}
    return [by_id[one] for one in found if one in by_id], last


def _terms(where: EventFilter) -> dict[str, Any]:
    return {
        "status": where.status,
        "retrying": where.retrying,
        "event_type": where.event_type,
        "since": to_text(where.since) if where.since else None,
        "until": to_text(where.until) if where.until else None,
        "outcome": where.outcome,
        "error_code": where.error_code,
        "lane": where.lane,
    }


def _event(row: tuple[Any, ...]) -> EventRecord:
    fields = dict(zip(EventRecord.__struct_fields__, row, strict=True))
    fields["status"] = Status(fields["status"])
    for name in ("created_at", "updated_at", "last_seen_at"):
        fields[name] = from_text(fields[name])
    for name in ("retry_after", "lease_until", "source_emitted_at", "processed_at"):
        fields[name] = fields[name] and from_text(fields[name])
    return EventRecord(**fields)
