"""Replay and discard by operators, and unparking, on the writer thread (F31, N14)."""

from collections.abc import Sequence
from datetime import datetime

from ackbox.model import Caller, DiscardKind, EventId, ReplayKind, to_text
from ackbox.stores.replay import (
    MADE_PENDING,
    UNPARK_ROWS,
    Groups,
    Kind,
    ReplayRow,
    audit_entries,
    group_for_discard,
    group_for_replay,
    kinds_by_id,
    lanes_of,
    made_pending,
    read_rows,
)
from ackbox.stores.sqlite.statements import Statements


def replay(
    sql: Statements, ids: Sequence[EventId], caller: Caller, now: datetime, *, completed: bool
) -> dict[EventId, ReplayKind]:
    groups = group_for_replay(_requested(sql, ids, now), completed=completed)
    _move(sql, groups, to_text(now))
    _add_audit(sql, "replay", groups, caller, to_text(now))
    return kinds_by_id(groups)


def discard(
    sql: Statements, ids: Sequence[EventId], caller: Caller, now: datetime
) -> dict[EventId, DiscardKind]:
    groups = group_for_discard(_requested(sql, ids, now))
    _complete(sql, groups.get(DiscardKind.DISCARDED, ()), to_text(now))
    _add_audit(sql, "discard", groups, caller, to_text(now))
    return kinds_by_id(groups)


def unpark(sql: Statements, source: str, event_type: str, now: datetime) -> int:
    wanted = {"source": source, "event_type": event_type, "limit": UNPARK_ROWS}
    rows = read_rows(sql.rows("replayable_parked", **wanted))
    _move(sql, {ReplayKind.UNPARKED: rows}, to_text(now))
    return len(rows)


def _requested(sql: Statements, ids: Sequence[EventId], now: datetime) -> list[ReplayRow]:
    return read_rows(sql.rows("replayable", ids=list(dict.fromkeys(ids)), now=to_text(now)))


def _move(sql: Statements, groups: Groups[ReplayKind], now: str) -> None:
    """Make the events pending. Demote the oldest event of each lane first, because an older event
    may enter the lane. Then promote the oldest event. If an event of the lane is running, its
    settlement promotes the oldest event later."""
    lanes = sorted(lanes_of(made_pending(groups)))
    if lanes:
        sql.run("demote", lanes=lanes)
    for kind in MADE_PENDING:
        if rows := groups.get(kind):
            sql.run(f"replay_{kind}", rows=[row.ledger_id for row in rows], now=now)
    if lanes:
        sql.run("promote", lanes=lanes)
    _drop_tombstones(sql, groups.get(ReplayKind.REPLAYED, ()))


def _complete(sql: Statements, rows: Sequence[ReplayRow], now: str) -> None:
    """Complete the events as discarded, and promote the next event of each lane."""
    if not rows:
        return
    sql.run("discard", rows=[row.ledger_id for row in rows], now=now)
    if lanes := sorted(lanes_of(rows)):
        sql.run("promote", lanes=lanes)
    _drop_tombstones(sql, rows)


def _drop_tombstones(sql: Statements, rows: Sequence[ReplayRow]) -> None:
    if rows:
        sql.run("drop_tombstones", keys=[(row.source, row.idempotency_key) for row in rows])


def _add_audit(
    sql: Statements, action: str, groups: Groups[Kind], caller: Caller, now: str
) -> None:
    about = {"actor": caller.actor, "peer": caller.peer, "action": action, "now": now}
    sql.run("note_audit", entries=audit_entries(groups), **about)
