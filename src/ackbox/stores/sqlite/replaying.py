"""An operator's replay, and the return of held events, as operations of the writer (F31)."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec
from msgspec import Struct

from ackbox.model import EventId, ReplayKind, Status, from_text, to_text
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.writer import Operation

_ROWS = 1000
_MOVED = (ReplayKind.REPLAYED, ReplayKind.HURRIED, ReplayKind.PUT_BACK)


class Row(Struct, frozen=True, array_like=True):
    ledger_id: int
    id: EventId
    source: str
    idempotency_key: str
    lane: str | None
    status: Status
    outcome: str | None
    retry_after: str | None


Rows = dict[ReplayKind, list[Row]]


def replay(
    ids: Sequence[EventId], actor: str, peer: str | None, now: datetime
) -> Operation[dict[EventId, ReplayKind]]:
    def operation(connection: apsw.Connection) -> dict[EventId, ReplayKind]:
        sql = Statements(connection)
        rows: Rows = defaultdict(list)
        for row in _rows(sql.fetch("replayable", ids=list(dict.fromkeys(ids)))):
            rows[_kind(row, now)].append(row)
        _move(sql, rows, to_text(now))
        _note(sql, rows, actor, peer, to_text(now))
        return {row.id: kind for kind, found in rows.items() for row in found}

    return operation


def put_back(source: str, event_type: str, now: datetime) -> Operation[int]:
    def operation(connection: apsw.Connection) -> int:
        sql = Statements(connection)
        asked = {"source": source, "event_type": event_type, "limit": _ROWS}
        found = _rows(sql.fetch("replayable_held", **asked))
        _move(sql, {ReplayKind.PUT_BACK: found}, to_text(now))
        return len(found)

    return operation


def _kind(row: Row, now: datetime) -> ReplayKind:
    if row.status is Status.PROCESSING:
        return ReplayKind.RUNNING
    if row.status is not Status.PENDING:
        return ReplayKind.REPLAYED
    if row.outcome == "held":
        return ReplayKind.PUT_BACK
    if row.retry_after is not None and from_text(row.retry_after) > now:
        return ReplayKind.HURRIED
    return ReplayKind.WAITING


def _move(sql: Statements, rows: Rows, now: str) -> None:
    """The head of a lane steps back first: it may no longer be the oldest. Then the oldest is
    found anew, unless one runs; in that case the end of its run does so."""
    moved = [row for kind in _MOVED for row in rows.get(kind, ())]
    lanes = sorted({(row.source, row.lane) for row in moved if row.lane is not None})
    if lanes:
        sql.run("demote", lanes=lanes)
    for kind in _MOVED:
        if found := rows.get(kind):
            sql.run(f"replay_{kind}", rows=[row.ledger_id for row in found], now=now)
    if lanes:
        sql.run("promote", lanes=lanes)
    if finished := rows.get(ReplayKind.REPLAYED):
        sql.run("drop_tombstones", keys=[(row.source, row.idempotency_key) for row in finished])


def _note(sql: Statements, rows: Rows, actor: str, peer: str | None, now: str) -> None:
    entries = [
        (row.id, msgspec.json.encode({"did": kind, "was": row.status}).decode())
        for kind, found in rows.items()
        for row in found
    ]
    about = {"actor": actor, "peer": peer, "action": "replay", "now": now}
    sql.run("note_audit", entries=entries, **about)


def _rows(found: object) -> list[Row]:
    return msgspec.convert(found, list[Row])
