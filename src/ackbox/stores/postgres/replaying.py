"""An operator's replay, and the return of held events, each in one transaction (F31)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ackbox.model import EventId, ReplayKind, Status
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.lanes import demote, hold_lanes, promote
from ackbox.stores.postgres.reader import is_event_id

_ROWS = 1000
_MOVED = (ReplayKind.REPLAYED, ReplayKind.HURRIED, ReplayKind.PUT_BACK)

Rows = Mapping[ReplayKind, Sequence[Any]]


async def replay(
    database: Database, ids: Sequence[EventId], actor: str, peer: str | None = None
) -> dict[EventId, ReplayKind]:
    wanted = sorted({one for one in ids if is_event_id(one)})
    rows: dict[ReplayKind, list[Any]] = defaultdict(list)
    async with database.transaction() as session:
        lanes = {(row[0], row[1]) for row in await session.fetch("lanes_of", ids=wanted)}
        if lanes:
            await hold_lanes(session, lanes)
        for row in await session.fetch("replayable", ids=wanted):
            rows[_kind(row)].append(row)
        await _move(session, rows)
        await _note(session, rows, actor, peer)
    return {EventId(row["id"]): kind for kind, found in rows.items() for row in found}


async def put_back(database: Database, source: str, event_type: str) -> int:
    asked = {"source": source, "event_type": event_type, "limit": _ROWS}
    async with database.transaction() as session:
        lanes = {(row[0], row[1]) for row in await session.fetch("lanes_of_held", **asked)}
        if lanes:
            await hold_lanes(session, lanes)
        found = await session.fetch("replayable_held", **asked)
        ours = [row for row in found if row["lane"] is None or (row[2], row["lane"]) in lanes]
        await _move(session, {ReplayKind.PUT_BACK: ours})
    return len(ours)


def _kind(row: Any) -> ReplayKind:
    status = Status(row["status"])
    if status is Status.PROCESSING:
        return ReplayKind.RUNNING
    if status is not Status.PENDING:
        return ReplayKind.REPLAYED
    if row["outcome"] == "held":
        return ReplayKind.PUT_BACK
    return ReplayKind.HURRIED if row["waits"] else ReplayKind.WAITING


async def _move(session: Session, rows: Rows) -> None:
    """The head of a lane steps back first: it may no longer be the oldest. Then the oldest is
    found anew, unless one runs; in that case the end of its run does so."""
    moved = [row for kind in _MOVED for row in rows.get(kind, ())]
    lanes = {(row["source"], row["lane"]) for row in moved if row["lane"] is not None}
    if lanes:
        await demote(session, lanes)
    for kind in _MOVED:
        if found := rows.get(kind):
            await session.fetch(f"replay_{kind}", rows=[row["ledger_id"] for row in found])
    await session.fetch("follow", rows=[row["ledger_id"] for row in moved])
    if lanes:
        await promote(session, lanes)
    if finished := rows.get(ReplayKind.REPLAYED):
        keys = {"keys": [row["idempotency_key"] for row in finished]}
        await session.fetch("drop_tombstones", sources=[r["source"] for r in finished], **keys)


async def _note(session: Session, rows: Rows, actor: str, peer: str | None) -> None:
    entries = [
        (row["id"], msgspec.json.encode({"did": kind, "was": row["status"]}).decode())
        for kind, found in rows.items()
        for row in found
    ]
    await session.fetch(
        "note_audit",
        ids=[event_id for event_id, _ in entries],
        details=[detail for _, detail in entries],
        actor=actor,
        peer=peer,
        action="replay",
    )
