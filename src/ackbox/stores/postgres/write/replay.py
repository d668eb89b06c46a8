"""Replay, discard and unpark events, each in one transaction (F31, N14)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ackbox.model import Caller, DiscardKind, EventId, ReplayKind, Status
from ackbox.stores.outcomes import discard_kind
from ackbox.stores.postgres.database import Database, Rows, Session
from ackbox.stores.postgres.read.reader import is_event_id
from ackbox.stores.postgres.write.lanes import demote, lock_lanes, promote

Kind = TypeVar("Kind", ReplayKind, DiscardKind)

_ROWS = 1000
_CHANGED = (ReplayKind.REPLAYED, ReplayKind.EXPEDITED, ReplayKind.UNPARKED)

Groups = Mapping[Kind, Sequence[Any]]


async def replay(
    database: Database, ids: Sequence[EventId], caller: Caller, *, completed: bool
) -> dict[EventId, ReplayKind]:
    rows: dict[ReplayKind, list[Any]] = defaultdict(list)
    async with database.transaction() as session:
        for row in await _locked(session, ids):
            rows[_kind(row, completed)].append(row)
        await _move(session, rows)
        await _note_audit(session, "replay", rows, caller)
    return {EventId(row["id"]): kind for kind, group in rows.items() for row in group}


async def discard(
    database: Database, ids: Sequence[EventId], caller: Caller
) -> dict[EventId, DiscardKind]:
    rows: dict[DiscardKind, list[Any]] = defaultdict(list)
    async with database.transaction() as session:
        for row in await _locked(session, ids):
            rows[discard_kind(Status(row["status"]))].append(row)
        await _complete(session, rows[DiscardKind.DISCARDED])
        await _note_audit(session, "discard", rows, caller)
    return {EventId(row["id"]): kind for kind, group in rows.items() for row in group}


async def unpark(database: Database, source: str, event_type: str) -> int:
    parameters = {"source": source, "event_type": event_type, "limit": _ROWS}
    async with database.transaction() as session:
        lanes = {(row[0], row[1]) for row in await session.fetch("lanes_of_parked", **parameters)}
        if lanes:
            await lock_lanes(session, lanes)
        parked = await session.fetch("replayable_parked", **parameters)
        rows = [row for row in parked if row["lane"] is None or (row[2], row["lane"]) in lanes]
        await _move(session, {ReplayKind.UNPARKED: rows})
    return len(rows)


async def _locked(session: Session, ids: Sequence[EventId]) -> Rows:
    """Lock the events' lanes, then their live rows, then the events, and return the events."""
    wanted = sorted({event_id for event_id in ids if is_event_id(event_id)})
    lanes = {(row[0], row[1]) for row in await session.fetch("lanes_of", ids=wanted)}
    if lanes:
        await lock_lanes(session, lanes)
    return await session.fetch("replayable", ids=wanted)


def _kind(row: Any, completed: bool) -> ReplayKind:
    status = Status(row["status"])
    if status is Status.PROCESSING:
        return ReplayKind.RUNNING
    if status is Status.COMPLETED and not completed:
        return ReplayKind.COMPLETED
    if status is not Status.PENDING:
        return ReplayKind.REPLAYED
    if row["outcome"] == "parked":
        return ReplayKind.UNPARKED
    return ReplayKind.EXPEDITED if row["waits"] else ReplayKind.WAITING


async def _move(session: Session, rows: Groups[ReplayKind]) -> None:
    """Make the rows pending. The heads of their lanes are demoted first, because they may no longer
    be the oldest; then the oldest of each lane is promoted. If an event of a lane runs, its
    settlement promotes the next."""
    changed = [row for kind in _CHANGED for row in rows.get(kind, ())]
    lanes = {(row["source"], row["lane"]) for row in changed if row["lane"] is not None}
    if lanes:
        await demote(session, lanes)
    for kind in _CHANGED:
        if group := rows.get(kind):
            await session.fetch(f"replay_{kind}", rows=[row["ledger_id"] for row in group])
    await session.fetch("refresh_live_events", rows=[row["ledger_id"] for row in changed])
    if lanes:
        await promote(session, lanes)
    await _drop_tombstones(session, rows.get(ReplayKind.REPLAYED, ()))


async def _complete(session: Session, rows: Sequence[Any]) -> None:
    """Discard the rows. The next event of each lane becomes its head, unless one runs."""
    if not rows:
        return
    await session.fetch("discard", rows=[row["ledger_id"] for row in rows])
    if lanes := {(row["source"], row["lane"]) for row in rows if row["lane"] is not None}:
        await promote(session, lanes)
    await _drop_tombstones(session, rows)


async def _drop_tombstones(session: Session, rows: Sequence[Any]) -> None:
    if rows:
        keys = {"keys": [row["idempotency_key"] for row in rows]}
        await session.fetch("drop_tombstones", sources=[row["source"] for row in rows], **keys)


async def _note_audit(session: Session, action: str, rows: Groups[Kind], caller: Caller) -> None:
    entries = [
        (row["id"], msgspec.json.encode({"did": kind, "was": row["status"]}).decode())
        for kind, group in rows.items()
        for row in group
    ]
    await session.fetch(
        "note_audit",
        ids=[event_id for event_id, _ in entries],
        details=[detail for _, detail in entries],
        actor=caller.actor,
        peer=caller.peer,
        action=action,
    )
