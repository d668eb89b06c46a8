"""Replay, discard and unpark events, each in one transaction (F31, N14)."""

from collections.abc import Sequence

from ackbox.model import Caller, DiscardKind, EventId, ReplayKind, is_event_id
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.write.lanes import demote, lock_lanes, promote
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


async def replay(
    database: Database, ids: Sequence[EventId], caller: Caller, *, completed: bool
) -> dict[EventId, ReplayKind]:
    async with database.transaction() as session:
        groups = group_for_replay(await _locked(session, ids), completed=completed)
        await _move(session, groups)
        await _note_audit(session, "replay", groups, caller)
    return kinds_by_id(groups)


async def discard(
    database: Database, ids: Sequence[EventId], caller: Caller
) -> dict[EventId, DiscardKind]:
    async with database.transaction() as session:
        groups = group_for_discard(await _locked(session, ids))
        await _complete(session, groups.get(DiscardKind.DISCARDED, ()))
        await _note_audit(session, "discard", groups, caller)
    return kinds_by_id(groups)


async def unpark(database: Database, source: str, event_type: str) -> int:
    wanted = {"source": source, "event_type": event_type, "limit": UNPARK_ROWS}
    async with database.transaction() as session:
        lanes = await _lock_lanes(session, "lanes_of_parked", **wanted)
        parked = read_rows(await session.fetch("replayable_parked", **wanted))
        rows = [row for row in parked if row.lane is None or (row.source, row.lane) in lanes]
        await _move(session, {ReplayKind.UNPARKED: rows})
    return len(rows)


async def _locked(session: Session, ids: Sequence[EventId]) -> list[ReplayRow]:
    """Lock the events' lanes, then their live rows, then the events, and return the events."""
    wanted = sorted({event_id for event_id in ids if is_event_id(event_id)})
    await _lock_lanes(session, "lanes_of", ids=wanted)
    return read_rows(await session.fetch("replayable", ids=wanted))


async def _lock_lanes(session: Session, block: str, **wanted: object) -> set[tuple[str, str]]:
    """Lock the lanes that the block returns, and return them."""
    lanes = {(row["source"], row["lane"]) for row in await session.fetch(block, **wanted)}
    if lanes:
        await lock_lanes(session, lanes)
    return lanes


async def _move(session: Session, groups: Groups[ReplayKind]) -> None:
    """Make the rows pending. The heads of their lanes are demoted first, because they may no longer
    be the oldest; then the oldest of each lane is promoted. If an event of a lane runs, its
    settlement promotes the next."""
    changed = made_pending(groups)
    lanes = lanes_of(changed)
    if lanes:
        await demote(session, lanes)
    for kind in MADE_PENDING:
        if rows := groups.get(kind):
            await session.fetch(f"replay_{kind}", rows=[row.ledger_id for row in rows])
    await session.fetch("refresh_live_events", rows=[row.ledger_id for row in changed])
    if lanes:
        await promote(session, lanes)
    await _drop_tombstones(session, groups.get(ReplayKind.REPLAYED, ()))


async def _complete(session: Session, rows: Sequence[ReplayRow]) -> None:
    """Discard the rows. The next event of each lane becomes its head, unless one runs."""
    if not rows:
        return
    await session.fetch("discard", rows=[row.ledger_id for row in rows])
    if lanes := lanes_of(rows):
        await promote(session, lanes)
    await _drop_tombstones(session, rows)


async def _drop_tombstones(session: Session, rows: Sequence[ReplayRow]) -> None:
    if rows:
        keys = {"keys": [row.idempotency_key for row in rows]}
        await session.fetch("drop_tombstones", sources=[row.source for row in rows], **keys)


async def _note_audit(session: Session, action: str, groups: Groups[Kind], caller: Caller) -> None:
    entries = audit_entries(groups)
    await session.fetch(
        "note_audit",
        ids=[event_id for event_id, _ in entries],
        details=[detail for _, detail in entries],
        actor=caller.actor,
        peer=caller.peer,
        action=action,
    )
