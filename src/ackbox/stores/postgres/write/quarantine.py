"""Keep, remove and prune requests that failed verification.

Each transaction takes one lock first: instances together stay within the budget, and the numbers of
requests are in the order of their commits. Senders do not wait for this lock.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ackbox.model import (
    QuarantineBudget,
    QuarantineId,
    RefusedRequest,
    Removal,
    RetentionPolicy,
)
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.quarantine import (
    AUDIT_ACTION,
    PRUNED_ROWS,
    audit_of_removals,
    choose_fitting,
    detail_of,
    read_usage,
    take,
)


class PostgresQuarantine:
    """Implements `Quarantine`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(
        self, requests: Sequence[RefusedRequest], budget: QuarantineBudget
    ) -> list[bool]:
        async with _locked(self._database) as session:
            usage = read_usage(await session.fetch("quarantine_usage"))
            fits = choose_fitting(requests, usage, budget)
            if any(fits):
                await session.fetch("keep_requests", **_columns(take(requests, fits)))
        return fits

    async def remove(
        self, removals: Sequence[Removal], *, actor: str, peer: str | None = None
    ) -> set[QuarantineId]:
        async with _locked(self._database) as session:
            ids = [removal.id for removal in removals]
            removed = await session.fetch("remove_quarantined", ids=ids)
            entries = audit_of_removals(removals, removed)
            await session.fetch(
                "note_audit",
                ids=[event_id for event_id, _ in entries],
                details=[detail for _, detail in entries],
                actor=actor,
                peer=peer,
                action=AUDIT_ACTION,
            )
        return {QuarantineId(row["quarantine_id"]) for row in removed}


async def prune_quarantine(database: Database, policy: RetentionPolicy) -> int:
    async with _locked(database) as session:
        keep = policy.keep_quarantined
        return len(await session.fetch("prune_quarantine", keep=keep, limit=PRUNED_ROWS))


@asynccontextmanager
async def _locked(database: Database) -> AsyncIterator[Session]:
    async with database.transaction() as session:
        await session.fetch("lock", key=lock_key(database.address.schema, "quarantine"))
        yield session


def _columns(requests: Sequence[RefusedRequest]) -> dict[str, list[Any]]:
    return {
        "source": [refused.source for refused in requests],
        "reason": [refused.reason for refused in requests],
        "detail": [detail_of(refused) for refused in requests],
        "delivery_id": [refused.delivery_id for refused in requests],
        "received_at": [refused.request.received_at for refused in requests],
        "size": [refused.size for refused in requests],
        "head": [refused.head() for refused in requests],
        "body": [refused.request.body for refused in requests],
    }
