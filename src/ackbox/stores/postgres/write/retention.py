"""Retention, one batch at a time: the tombstone is written first, and the row deleted later (W11).

If both happened in one step, an insert that waits for the delete would find neither the row nor the
tombstone, and an event of a known key would run again. Vacuum reclaims the space of deleted rows,
so there is nothing else to reclaim.
"""

from ackbox.model import PruneResult, PurgeResult, RetentionPolicy, Status, TombstonePass
from ackbox.stores.fingerprints import WINDOW
from ackbox.stores.postgres.database import Database

_ROWS = 1000


async def add_tombstones(
    database: Database, policy: RetentionPolicy, status: Status, after: int
) -> TombstonePass:
    """Write tombstones for one batch of old events. Arrival order is nearly the order of time, so
    the pass ends with the first batch that has no old event. An event that a wrong clock dated into
    the future does not end the pass."""
    async with database.transaction() as session:
        limits = {"keep": policy.keep_of(status), "keep_after_end": policy.keep_after_end}
        (batch,) = await session.fetch(f"old_events_{status}", after=after, limit=_ROWS, **limits)
        rows = batch["rows"] or []
        tombstoned = (
            len(await session.fetch("add_tombstones", rows=rows, status=status)) if rows else 0
        )
    return TombstonePass(tombstoned, batch["last"] if batch["anything_old"] else None)


async def prune(database: Database, policy: RetentionPolicy) -> PruneResult:
    """Delete events that have a tombstone. An event that changed since stays, and its tombstone is
    dropped."""
    async with database.transaction() as session:
        prunable = await session.fetch("prunable", delete_delay=policy.delete_delay, limit=_ROWS)
        keys = {
            "sources": [row["source"] for row in prunable],
            "keys": [row["idempotency_key"] for row in prunable],
        }
        rows = len(await session.fetch("prune", rows=[row["ledger_id"] for row in prunable]))
        if len(await session.fetch("close_tombstones", **keys)) < len(prunable):
            await session.fetch("drop_tombstones", **keys)
        waiting = bool(await session.fetch("tombstones_open"))
    return PruneResult(rows, more=bool(prunable), waiting=waiting)


async def purge(database: Database, policy: RetentionPolicy) -> PurgeResult:
    """Delete expired tombstones, then old audit rows. When none is left, at the end of a pass, drop
    idle lanes too."""
    if rows := await database.fetch("purge_tombstones", keep_keys=policy.keep_keys, limit=_ROWS):
        return PurgeResult(len(rows), 0)
    if rows := await database.fetch("prune_audit", keep=policy.keep, limit=_ROWS):
        return PurgeResult(0, len(rows))
    await _drop_idle_lanes(database)
    return PurgeResult(0, 0)


async def prune_fingerprints(database: Database) -> int:
    return len(await database.fetch("prune_fingerprints", window=WINDOW, limit=_ROWS))


async def _drop_idle_lanes(database: Database) -> None:
    """Drop all idle lanes, because senders choose their names (S14). Each statement reads a bounded
    number of lanes."""
    source, lane = "", ""
    while rows := await database.fetch("drop_lanes", source=source, lane=lane, limit=_ROWS):
        source, lane = rows[0]
