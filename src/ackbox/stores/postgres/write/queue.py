"""`EventQueue` on PostgreSQL: claims use SKIP LOCKED, and leases expire by the server's clock.

Claims read `live_events`. A running event keeps its row there, so that a claim updates no index.
A claim therefore has to skip the rows of running events. Their number is limited by how many events
the instances hold.

`claim_scans.py` says where in the index each claim starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

from ackbox.model import (
    Caps,
    Claim,
    EventId,
    Outcome,
    Release,
    Settlement,
    Suspect,
    WorkerId,
    is_event_id,
)
from ackbox.stores.outcomes import follow_ups_of, has_effects
from ackbox.stores.postgres.database import Database, KeptConnection
from ackbox.stores.postgres.write.claim_scans import SCAN_SECONDS, ClaimScans, Scan
from ackbox.stores.postgres.write.effects import settle_with_effects
from ackbox.stores.postgres.write.settlement import Written, settle_plain

_ALL = 2**31 - 1
_FIELDS = len(Claim.__struct_fields__)
_SOURCE = Claim.__struct_fields__.index("source")
_DUE_AT = _FIELDS


class PostgresQueue:
    """A queue whose wake-ups are hints: code that makes a row claimable calls `wake`, and
    `scans.request_full_scan` if the row may be before the cursors."""

    def __init__(self, database: Database, *, scan_seconds: float = SCAN_SECONDS) -> None:
        self._database = database
        self._renewals = KeptConnection(database.address)
        self._loop = asyncio.get_running_loop()
        self._wake_up = asyncio.Event()
        self.has_submissions = asyncio.Event()
        """Set when a handler of this instance has sent an event."""
        self._due_at: float | None = None
        self.scans = ClaimScans(monotonic(), scan_seconds=scan_seconds)

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        self._wake_up.clear()
        parameters = {"worker": worker, "lease": lease, "limit": limit}
        scan = self.scans.choose(monotonic())
        claims = await self._claim_by(scan, parameters, caps)
        if not claims and scan is not Scan.FULL:
            claims = await self._claim_by(Scan.FULL, parameters, caps)
        return claims

    async def claim_these(
        self, worker: WorkerId, ids: Sequence[EventId], *, limit: int, lease: timedelta
    ) -> list[Claim]:
        self._wake_up.clear()
        wanted = [event_id for event_id in ids if is_event_id(event_id)]
        rows = await self._database.fetch(
            "claim_among", worker=worker, ids=wanted, limit=limit, lease=lease
        )
        return [Claim(*row) for row in rows]

    async def suspect(self) -> Suspect | None:
        rows = await self._database.fetch("suspect")
        return Suspect(**rows[0]) if rows else None

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        if not is_event_id(event_id):
            return None
        parameters = {"worker": worker, "id": event_id, "lease": lease}
        rows = await self._database.fetch("claim_suspect", **parameters)
        return Claim(*rows[0]) if rows else None

    async def _claim_by(self, scan: Scan, parameters: dict[str, Any], caps: Caps) -> list[Claim]:
        if scan is Scan.FULL:
            self.scans.cursors = {}
        started = monotonic()
        rows = await self._database.fetch(
            "claim", **parameters, **self._scan_parameters(scan, caps)
        )
        now = monotonic()
        claimed = rows if rows[0][0] is not None else ()
        limit_reached = len(claimed) == parameters["limit"] > 1
        self.scans.note_scan(scan, now - started, now, limit_reached=limit_reached)
        last = {row[_SOURCE]: row for row in claimed}
        self.scans.cursors |= {source: (row[_DUE_AT], row[0]) for source, row in last.items()}
        next_due = rows[0]["next_due"]
        self._due_at = self.scans.next_claim_at(None if next_due is None else now + float(next_due))
        return [Claim(*row[:_FIELDS]) for row in claimed]

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        """Renew leases, also from another event loop: the heartbeat has its own, because a handler
        may block ours."""
        pairs = sorted((claim.ledger_id, claim.run) for claim in claims)
        values = {
            "rows": [row for row, _ in pairs],
            "runs": [run for _, run in pairs],
            "lease": lease,
        }
        if asyncio.get_running_loop() is self._loop:
            rows = await self._database.fetch("renew", **values)
        else:
            rows = await self._renewals.fetch("renew", **values)
        held = {row[0] for row in rows}
        return {claim.id for claim in claims if claim.ledger_id in held}

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        plain = [settlement for settlement in settlements if not has_effects(settlement)]
        with_effects = [settlement for settlement in settlements if has_effects(settlement)]
        written: Written = {}
        if plain:
            written = await settle_plain(self._database, plain)
        if with_effects:
            written |= await settle_with_effects(self._database, with_effects)
            if follow_ups_of(with_effects):
                self.has_submissions.set()
        if any(s.claim.lane or isinstance(s.outcome, Release) for s in settlements):
            self.scans.request_full_scan()
        self.wake()  # a lane may be free now, or a retry may be due before all else
        return written

    async def wait(self, timeout: timedelta) -> None:
        seconds = timeout.total_seconds()
        if self._due_at is not None:
            seconds = min(seconds, max(self._due_at - monotonic(), 0.0))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_up.wait(), seconds)

    def wake(self) -> None:
        self._wake_up.set()

    def _scan_parameters(self, scan: Scan, caps: Caps) -> dict[str, Any]:
        cursors = self.scans.cursors
        return {
            "full_scan": scan is Scan.FULL,
            "sources": list(cursors),
            "since": [since for since, _ in cursors.values()],
            "after": [after for _, after in cursors.values()],
            "holders": list(caps.held),
            "held": list(caps.held.values()),
            "share": caps.share,
            "alone": _ALL if caps.alone is None else caps.alone,
        }
