"""Retention, a batch at a time: a tombstone first, the row a while later (W11).

In one step, an insert that waits for the delete would find neither row nor tombstone, and a purged
key would run again. Vacuum takes the dead rows away behind it: nothing is left to give back.
"""

from ackbox.model import PruneResult, RetentionPolicy, Status, TombstonePass
from ackbox.stores.postgres.database import Database

_ROWS = 1000


async def add_tombstones(
    database: Database, policy: RetentionPolicy, after: int, *, status: Status = Status.COMPLETED
) -> TombstonePass:
    """Arrival is nearly the order of time, so the walk ends with the first batch that has nothing
    old in it; what a wrong clock dated into the future does not end it."""
    async with database.transaction() as session:
        limits = {"keep": policy.keep_of(status), "rest": policy.rest}
        (walk,) = await session.fetch(f"old_events_{status}", after=after, limit=_ROWS, **limits)
        rows = walk["rows"] or []
        tombstoned = (
            len(await session.fetch("add_tombstones", rows=rows, status=status)) if rows else 0
        )
    return TombstonePass(tombstoned, walk["last"] if walk["anything_old"] else None)


async def prune(database: Database, policy: RetentionPolicy) -> PruneResult:
    """What was touched since it was buried stays, and its tombstone goes."""
    async with database.transaction() as session:
        prunable = await session.fetch("prunable", wait=policy.wait, limit=_ROWS)
        keys = {
            "sources": [row["source"] for row in prunable],
            "keys": [row["idempotency_key"] for row in prunable],
        }
        rows = len(await session.fetch("prune", rows=[row["ledger_id"] for row in prunable]))
        if len(await session.fetch("close_tombstones", **keys)) < len(prunable):
            await session.fetch("drop_tombstones", **keys)
        waiting = bool(await session.fetch("tombstones_open"))
    return PruneResult(rows, more=bool(prunable), waiting=waiting)


async def purge_tombstones(database: Database, policy: RetentionPolicy) -> int:
    """At the end of a pass, when no tombstone is left to delete, drop the idle lanes too."""
    purged = len(await database.fetch("purge_tombstones", remember=policy.remember, limit=_ROWS))
    if not purged:
        await _drop_idle_lanes(database)
    return purged


async def prune_audit(database: Database, policy: RetentionPolicy) -> int:
    return len(await database.fetch("prune_audit", keep=policy.keep, limit=_ROWS))


async def _drop_idle_lanes(database: Database) -> None:
    """Drop all of them: their names come from senders. Each statement looks at a bounded number."""
    source, lane = "", ""
    while rows := await database.fetch("drop_lanes", source=source, lane=lane, limit=_ROWS):
        source, lane = rows[0]
