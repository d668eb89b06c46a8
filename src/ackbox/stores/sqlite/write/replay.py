"""Replay and discard by operators, and unparking, as operations of the writer (F31, N14)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import apsw
import msgspec
from msgspec import Struct

from ackbox.model import Caller, DiscardKind, EventId, ReplayKind, Status, from_text, to_text
from ackbox.stores.outcomes import discard_kind
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.jobs import Operation

Kind = TypeVar("Kind", ReplayKind, DiscardKind)

_ROWS = 1000
_CHANGED = (ReplayKind.REPLAYED, ReplayKind.EXPEDITED, ReplayKind.UNPARKED)


class Row(Struct, frozen=True, array_like=True):
    ledger_id: int
    id: EventId
    source: str
    idempotency_key: str
    lane: str | None
    status: Status
    outcome: str | None
    retry_after: str | None


Rows = Mapping[ReplayKind, Sequence[Row]]


def replay(
    ids: Sequence[EventId], caller: Caller, now: datetime, *, completed: bool
) -> Operation[dict[EventId, ReplayKind]]:
    def operation(connection: apsw.Connection) -> dict[EventId, ReplayKind]:
        sql = Statements(connection)
        rows: dict[ReplayKind, list[Row]] = defaultdict(list)
        for row in _rows(sql.fetch("replayable", ids=list(dict.fromkeys(ids)))):
            rows[_kind(row, now, completed)].append(row)
        _move(sql, rows, to_text(now))
        _add_audit(sql, "replay", rows, caller, to_text(now))
        return {row.id: kind for kind, group in rows.items() for row in group}

    return operation


def discard(
    ids: Sequence[EventId], caller: Caller, now: datetime
) -> Operation[dict[EventId, DiscardKind]]:
    def operation(connection: apsw.Connection) -> dict[EventId, DiscardKind]:
        sql = Statements(connection)
        rows: dict[DiscardKind, list[Row]] = defaultdict(list)
        for row in _rows(sql.fetch("replayable", ids=list(dict.fromkeys(ids)))):
            rows[discard_kind(row.status)].append(row)
        _complete(sql, rows[DiscardKind.DISCARDED], to_text(now))
        _add_audit(sql, "discard", rows, caller, to_text(now))
        return {row.id: kind for kind, group in rows.items() for row in group}

    return operation


def unpark(source: str, event_type: str, now: datetime) -> Operation[int]:
    def operation(connection: apsw.Connection) -> int:
        sql = Statements(connection)
        parameters = {"source": source, "event_type": event_type, "limit": _ROWS}
        rows = _rows(sql.fetch("replayable_parked", **parameters))
        _move(sql, {ReplayKind.UNPARKED: rows}, to_text(now))
        return len(rows)

    return operation


def _kind(row: Row, now: datetime, completed: bool) -> ReplayKind:
    if row.status is Status.PROCESSING:
        return ReplayKind.RUNNING
    if row.status is Status.COMPLETED and not completed:
        return ReplayKind.COMPLETED
    if row.status is not Status.PENDING:
        return ReplayKind.REPLAYED
    if row.outcome == "parked":
        return ReplayKind.UNPARKED
    if row.retry_after is not None and from_text(row.retry_after) > now:
        return ReplayKind.EXPEDITED
    return ReplayKind.WAITING


def _move(sql: Statements, rows: Rows, now: str) -> None:
    """Make the events pending. Demote the oldest event of each lane first, because an older event
    may enter the lane. Then promote the oldest event. If an event of the lane is running, its
    settlement promotes the oldest event later."""
    changed = [row for kind in _CHANGED for row in rows.get(kind, ())]
    lanes = sorted({(row.source, row.lane) for row in changed if row.lane is not None})
    if lanes:
        sql.run("demote", lanes=lanes)
    for kind in _CHANGED:
        if group := rows.get(kind):
            sql.run(f"replay_{kind}", rows=[row.ledger_id for row in group], now=now)
    if lanes:
        sql.run("promote", lanes=lanes)
    if finished := rows.get(ReplayKind.REPLAYED):
        sql.run("drop_tombstones", keys=[(row.source, row.idempotency_key) for row in finished])


def _complete(sql: Statements, rows: Sequence[Row], now: str) -> None:
    """Complete the events as discarded, and promote the next event of each lane."""
    if not rows:
        return
    sql.run("discard", rows=[row.ledger_id for row in rows], now=now)
    if lanes := sorted({(row.source, row.lane) for row in rows if row.lane is not None}):
        sql.run("promote", lanes=lanes)
    sql.run("drop_tombstones", keys=[(row.source, row.idempotency_key) for row in rows])


def _add_audit(
    sql: Statements, action: str, rows: Mapping[Kind, Sequence[Row]], caller: Caller, now: str
) -> None:
    entries = [
        (row.id, msgspec.json.encode({"did": kind, "was": row.status}).decode())
        for kind, group in rows.items()
        for row in group
    ]
    about = {"actor": caller.actor, "peer": caller.peer, "action": action, "now": now}
    sql.run("note_audit", entries=entries, **about)


def _rows(values: object) -> list[Row]:
    return msgspec.convert(values, list[Row])
