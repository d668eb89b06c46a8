"""Decisions about replays and discards that both stores share, before any SQL changes an event."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ackbox.model import DiscardKind, EventId, OutcomeName, ReplayKind, Status

Kind = TypeVar("Kind", ReplayKind, DiscardKind)

MADE_PENDING = (ReplayKind.REPLAYED, ReplayKind.EXPEDITED, ReplayKind.UNPARKED)
UNPARK_ROWS = 1000


class ReplayRow(Struct, frozen=True):
    """The columns of an event on which a replay or a discard depends. An event `waits` if its next
    attempt is due later."""

    ledger_id: int
    id: EventId
    source: str
    idempotency_key: str
    lane: str | None
    status: Status
    outcome: str | None
    waits: bool


Groups = Mapping[Kind, Sequence[ReplayRow]]
"""The events of one call, by what happens to them."""


def read_rows(rows: Iterable[Any]) -> list[ReplayRow]:
    return msgspec.convert([dict(row) for row in rows], list[ReplayRow], strict=False)


def group_for_replay(rows: Iterable[ReplayRow], *, completed: bool) -> Groups[ReplayKind]:
    """Group the events by what a replay does to them. Completed events are replayed only if
    `completed`."""
    groups: dict[ReplayKind, list[ReplayRow]] = defaultdict(list)
    for row in rows:
        groups[_replay_kind(row, completed)].append(row)
    return groups


def group_for_discard(rows: Iterable[ReplayRow]) -> Groups[DiscardKind]:
    groups: dict[DiscardKind, list[ReplayRow]] = defaultdict(list)
    for row in rows:
        groups[_discard_kind(row.status)].append(row)
    return groups


def made_pending(groups: Groups[ReplayKind]) -> list[ReplayRow]:
    return [row for kind in MADE_PENDING for row in groups.get(kind, ())]


def lanes_of(rows: Iterable[ReplayRow]) -> set[tuple[str, str]]:
    return {(row.source, row.lane) for row in rows if row.lane is not None}


def kinds_by_id(groups: Groups[Kind]) -> dict[EventId, Kind]:
    return {row.id: kind for kind, rows in groups.items() for row in rows}


def audit_entries(groups: Groups[Kind]) -> list[tuple[EventId, str]]:
    """Return the id and the detail of an audit entry for each event."""
    return [
        (row.id, msgspec.json.encode({"did": kind, "was": row.status}).decode())
        for kind, rows in groups.items()
        for row in rows
    ]


def _replay_kind(row: ReplayRow, completed: bool) -> ReplayKind:
    if row.status is Status.PROCESSING:
        return ReplayKind.RUNNING
    if row.outcome == OutcomeName.SPLIT:
        return ReplayKind.SPLIT
    if row.status is Status.COMPLETED and not completed:
        return ReplayKind.COMPLETED
    if row.status is not Status.PENDING:
        return ReplayKind.REPLAYED
    if row.outcome == OutcomeName.PARKED:
        return ReplayKind.UNPARKED
    return ReplayKind.EXPEDITED if row.waits else ReplayKind.WAITING


def _discard_kind(status: Status) -> DiscardKind:
    match status:
        case Status.PROCESSING:
            return DiscardKind.RUNNING
        case Status.COMPLETED:
            return DiscardKind.COMPLETED
        case Status.PENDING | Status.FAILED:
            return DiscardKind.DISCARDED
