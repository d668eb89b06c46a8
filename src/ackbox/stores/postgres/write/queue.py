"""`EventQueue` on PostgreSQL: claims use SKIP LOCKED, and leases expire by the server's clock.

Claims read `live_events`. A running event keeps its row there, so that a claim updates no index.
A claim therefore has to skip the rows of running events. Their number is limited by how many events
the instances hold.

A completed event leaves a dead index entry. While somebody's long transaction keeps vacuum from
removing dead entries, a full scan (one that starts at the oldest entry) reads all of them (F37).
A claim can instead continue after its cursors: for each source, the last row that was claimed.

- By default a claim is a full scan. About once a second one claim continues after the cursors
  instead, to measure how long that takes.
- Claims continue after the cursors while the last claim reached its limit, or while a full scan
  takes more than `_SLOW_FACTOR` times as long. A full scan then still runs about once a second, or
  less often if it is slow (`_FULL_SCAN_SHARE`), because only a full scan finds expired leases at
  positions before the cursors.
- If a claim after the cursors returns nothing, a full scan follows at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Any

from ackbox.model import Caps, Claim, EventId, Outcome, Release, Settlement, Suspect, WorkerId
from ackbox.stores.outcomes import has_effects
from ackbox.stores.postgres.database import Database, KeptConnection
from ackbox.stores.postgres.read.reader import is_event_id
from ackbox.stores.postgres.write.effects import settle_with_effects
from ackbox.stores.postgres.write.settlement import Written, settle_plain

_ALL = 2**31 - 1
_SCAN_SECONDS = 1.0
_FULL_SCAN_SHARE = 10  # slow full scans take at most a tenth of the time
_SLOW_FACTOR = 1.5
_SLACK_SECONDS = 0.002
_FIELDS = len(Claim.__struct_fields__)
_SOURCE = Claim.__struct_fields__.index("source")
_DUE_AT = _FIELDS


class PostgresQueue:
    """A queue whose wake-ups are hints: code that makes a row claimable calls `wake`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._renewals = KeptConnection(database.address)
        self._loop = asyncio.get_running_loop()
        self._wake_up = asyncio.Event()
        self._due_at: float | None = None
        self._cursors: dict[str, tuple[datetime, int]] = {}
        self._full_scan_is_slow = False
        self._full_scan_at = self._cursor_claim_at = monotonic() + _SCAN_SECONDS
        self._cursor_claim_seconds = inf
        self._limit_was_reached = False

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        self._wake_up.clear()
        parameters = {"worker": worker, "lease": lease, "limit": limit}
        now = monotonic()
        if self._full_scan_is_slow or self._limit_was_reached:
            use_cursors = now < self._full_scan_at
        else:
            use_cursors = now >= self._cursor_claim_at
        claims: list[Claim] = []
        if use_cursors and self._cursors:
            claims = await self._claim_after_cursors(parameters, caps)
        claims = claims or await self._claim_full(parameters, caps)
        self._limit_was_reached = len(claims) == limit > 1
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
        return Suspect(*rows[0]) if rows else None

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        if not is_event_id(event_id):
            return None
        parameters = {"worker": worker, "id": event_id, "lease": lease}
        rows = await self._database.fetch("claim_suspect", **parameters)
        return Claim(*rows[0]) if rows else None

    async def _claim_after_cursors(self, parameters: dict[str, Any], caps: Caps) -> list[Claim]:
        started = monotonic()
        rows = await self._database.fetch("claim", **parameters, **self._scan_parameters(caps))
        self._cursor_claim_seconds = monotonic() - started
        self._cursor_claim_at = monotonic() + _SCAN_SECONDS
        return self._note_claims(rows)

    async def _claim_full(self, parameters: dict[str, Any], caps: Caps) -> list[Claim]:
        self._cursors = {}
        started = monotonic()
        rows = await self._database.fetch(
            "claim", **parameters, **self._scan_parameters(caps, full_scan=True)
        )
        seconds = monotonic() - started
        self._full_scan_is_slow = (
            seconds > _SLOW_FACTOR * self._cursor_claim_seconds + _SLACK_SECONDS
        )
        self._full_scan_at = monotonic() + max(seconds * _FULL_SCAN_SHARE, _SCAN_SECONDS)
        return self._note_claims(rows)

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

    async def end_renewals(self) -> None:
        self._renewals.close()

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        plain = [settlement for settlement in settlements if not has_effects(settlement)]
        with_effects = [settlement for settlement in settlements if has_effects(settlement)]
        written: Written = {}
        if plain:
            written = await settle_plain(self._database, plain)
        if with_effects:
            written |= await settle_with_effects(self._database, with_effects)
        if any(s.claim.lane or isinstance(s.outcome, Release) for s in settlements):
            self.request_full_scan()
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

    def request_full_scan(self) -> None:
        """Scan everything at the next claim: an event before the cursors may be claimable."""
        self._full_scan_at = 0.0

    def note_sources(self, sources: AbstractSet[str]) -> None:
        """Request a full scan if events were recorded for a source that has no cursor."""
        if not sources <= self._cursors.keys():
            self.request_full_scan()

    def _scan_parameters(self, caps: Caps, *, full_scan: bool = False) -> dict[str, Any]:
        return {
            "full_scan": full_scan,
            "sources": list(self._cursors),
            "since": [since for since, _ in self._cursors.values()],
            "after": [after for _, after in self._cursors.values()],
            "holders": list(caps.held),
            "held": list(caps.held.values()),
            "share": caps.share,
            "alone": _ALL if caps.alone is None else caps.alone,
        }

    def _note_claims(self, rows: Sequence[Any]) -> list[Claim]:
        next_due = rows[0]["next_due"]
        self._due_at = None if next_due is None else monotonic() + float(next_due)
        if self._full_scan_is_slow:
            self._due_at = min(self._due_at or self._full_scan_at, self._full_scan_at)
        claimed = rows if rows[0][0] is not None else ()
        last = {row[_SOURCE]: row for row in claimed}
        self._cursors |= {source: (row[_DUE_AT], row[0]) for source, row in last.items()}
        return [Claim(*row[:_FIELDS]) for row in claimed]
