"""The quarantine on the writer thread: keep, remove and prune requests that failed verification."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ackbox.errors import StorageFull
from ackbox.model import (
    Caller,
    Clock,
    QuarantineBudget,
    QuarantineId,
    RefusedRequest,
    Removal,
    RetentionPolicy,
    to_text,
)
from ackbox.stores.quarantine import (
    AUDIT_ACTION,
    PRUNED_ROWS,
    audit_of_removals,
    choose_fitting,
    detail_of,
    read_usage,
    take,
)
from ackbox.stores.sqlite.statements import Statements, blocks
from ackbox.stores.sqlite.write.disk_space import DiskSpace
from ackbox.stores.sqlite.write.writer import Writer


class SqliteQuarantine:
    """Implements `Quarantine`."""

    def __init__(self, writer: Writer, disk_space: DiskSpace, clock: Clock) -> None:
        self._writer = writer
        self._disk_space = disk_space
        self._clock = clock

    async def keep(
        self, requests: Sequence[RefusedRequest], budget: QuarantineBudget
    ) -> list[bool]:
        """Keep the requests, unless the disk is nearly full: its reserve is for events."""
        self._disk_space.assert_not_full()
        try:
            return await self._writer.run(_keep, requests, budget, self._clock())
        except StorageFull:
            self._disk_space.note_full()
            raise

    async def remove(
        self, removals: Sequence[Removal], *, actor: str, peer: str | None = None
    ) -> set[QuarantineId]:
        return await self._writer.run(_remove, removals, Caller(actor, peer), self._clock())


def prune_quarantine(sql: Statements, policy: RetentionPolicy, now: datetime) -> int:
    sql.run("prune_quarantine", before=to_text(now - policy.keep_quarantined), limit=PRUNED_ROWS)
    return sql.connection.changes()


def _keep(
    sql: Statements, requests: Sequence[RefusedRequest], budget: QuarantineBudget, now: datetime
) -> list[bool]:
    fits = choose_fitting(requests, read_usage(sql.rows("quarantine_usage")), budget)
    rows = [_row(request, to_text(now)) for request in take(requests, fits)]
    sql.connection.executemany(blocks()["keep_requests"], rows)
    return fits


def _row(refused: RefusedRequest, now: str) -> tuple[Any, ...]:
    return (
        refused.source,
        refused.reason,
        detail_of(refused),
        refused.delivery_id,
        to_text(refused.request.received_at),
        refused.size,
        refused.head(),
        refused.request.body,
        now,
    )


def _remove(
    sql: Statements, removals: Sequence[Removal], caller: Caller, now: datetime
) -> set[QuarantineId]:
    removed = sql.rows("remove_quarantined", ids=[removal.id for removal in removals])
    sql.run(
        "note_audit",
        entries=audit_of_removals(removals, removed),
        actor=caller.actor,
        peer=caller.peer,
        action=AUDIT_ACTION,
        now=to_text(now),
    )
    return {QuarantineId(row["quarantine_id"]) for row in removed}
