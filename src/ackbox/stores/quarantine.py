"""Decisions about the quarantine that both stores share, and the form of its rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ackbox.model import (
    EventId,
    InboundRequest,
    QuarantineBudget,
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantinePage,
    QuarantineRecord,
    QuarantineUsage,
    RefusedRequest,
    Removal,
    RequestHead,
)
from ackbox.text import printable

AUDIT_ACTION = "quarantine"
PRUNED_ROWS = 20
"""The number of requests that retention deletes in one transaction; each may be large."""
_LAST = 1 << 62

Row = Any
"""A row with its values by column name."""


def choose_fitting(
    requests: Sequence[RefusedRequest],
    usage: Mapping[str, QuarantineUsage],
    budget: QuarantineBudget,
) -> list[bool]:
    """Return for each request whether it fits into the budget, after what is kept already and the
    requests before it."""
    of_source = Counter({source: used.bytes for source, used in usage.items()})
    total = of_source.total()
    fits: list[bool] = []
    for request in requests:
        size, source = request.size, request.source
        fits.append(budget.has_room(size, of_source=of_source[source], of_all=total))
        if fits[-1]:
            of_source[source] += size
            total += size
    return fits


def take(requests: Sequence[RefusedRequest], fits: Sequence[bool]) -> list[RefusedRequest]:
    return [request for request, fit in zip(requests, fits, strict=True) if fit]


def detail_of(request: RefusedRequest) -> str:
    """Return the detail as a text that both databases can hold."""
    return printable(request.detail)


def page_terms(where: QuarantineFilter, cursor: QuarantineId | None) -> dict[str, Any]:
    return {
        "source": where.source,
        "reason": where.reason,
        "last": _LAST if where.last is None else where.last,
        "cursor": cursor or 0,
    }


def read_page(rows: Iterable[Row], limit: int) -> QuarantinePage:
    """Make a page of the rows: one row more than the limit was asked for."""
    items = [read_record(row) for row in rows]
    shown = items[:limit]
    return QuarantinePage(shown, shown[-1].id if len(items) > limit else None)


def read_record(row: Row) -> QuarantineRecord:
    return msgspec.convert({**row}, QuarantineRecord)


def read_request(row: Row) -> QuarantinedRequest:
    record = read_record(row)
    head = msgspec.json.decode(row["head"], type=RequestHead)
    request = InboundRequest(
        head.method, head.url, head.headers, row["body"], record.received_at, head.request_id
    )
    return QuarantinedRequest(record, request)


def read_usage(rows: Iterable[Row]) -> dict[str, QuarantineUsage]:
    return {row["source"]: QuarantineUsage(row["requests"], row["bytes"]) for row in rows}


def audit_of_removals(
    removals: Sequence[Removal], removed: Iterable[Row]
) -> list[tuple[EventId | None, str]]:
    """Return the event and the detail of an audit entry for each request that was removed."""
    by_id = {removal.id: removal for removal in removals}
    return [_audit_entry(by_id[row["quarantine_id"]], row) for row in removed]


def _audit_entry(removal: Removal, row: Row) -> tuple[EventId | None, str]:
    detail = {
        "did": removal.kind,
        "quarantine_id": removal.id,
        "source": row["source"],
        "reason": row["reason"],
    }
    return removal.event_id, msgspec.json.encode(detail).decode()
