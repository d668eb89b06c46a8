"""`EventQueue` on PostgreSQL: claims by SKIP LOCKED, leases judged by the server's clock.

Claims read `live_events`, where what runs keeps its row: so that a claim touches no index, it
passes by what others run, which is as much as they hold. What is completed leaves a dead entry, and
while somebody's long transaction keeps vacuum away, a claim that begins at the oldest entry wades
through all of them (F37). So a claim after one that took all it might, and about one a second in
any case, goes on from where the last one stopped; when that turns out to be much quicker, they all
do. About once a second one looks at all there is, and finds the leases that have ended.
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
from ackbox.stores.postgres.effects import settle_with_effects
from ackbox.stores.postgres.reader import is_event_id
from ackbox.stores.postgres.settlement import Written, settle_plain

_ALL = 2**31 - 1
_EVERY_SECONDS = 1.0
_WHOLE_SHARE = 10  # a look at the whole index, once it is slow, takes at most a tenth of the time
_MUCH = 1.5
_SLACK_SECONDS = 0.002
_FIELDS = len(Claim.__struct_fields__)
_SOURCE = Claim.__struct_fields__.index("source")
_DUE_AT = _FIELDS


class PostgresQueue:
    """Wake-ups are hints: whoever makes a row claimable rings the bell."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._renewals = KeptConnection(database.address)
        self._home = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._due_at: float | None = None
        self._places: dict[str, tuple[datetime, int]] = {}
        self._slow = False
        self._whole_again = self._onward_again = monotonic() + _EVERY_SECONDS
        self._onward_seconds = inf
        self._was_full = False

    async def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        caps: Caps,
        ids: Sequence[EventId] | None = None,
    ) -> list[Claim]:
        self._bell.clear()
        asked = {"worker": worker, "lease": lease, "limit": limit}
        if ids is not None:
            wanted = [one for one in ids if is_event_id(one)]
            rows = await self._database.fetch("claim_among", ids=wanted, **asked)
            return [Claim(*row) for row in rows]
        now = monotonic()
        hasty = self._slow or self._was_full
        onward = now < self._whole_again if hasty else now >= self._onward_again
        claims: list[Claim] = []
        if onward and self._places:
            claims = await self._claim_after_cursors(asked, caps)
        claims = claims or await self._claim_full(asked, caps)
        self._was_full = len(claims) == limit > 1
        return claims

    async def suspect(self) -> Suspect | None:
        rows = await self._database.fetch("suspect")
        return Suspect(*rows[0]) if rows else None

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        if not is_event_id(event_id):
            return None
        asked = {"worker": worker, "id": event_id, "lease": lease}
        rows = await self._database.fetch("claim_suspect", **asked)
        return Claim(*rows[0]) if rows else None

    async def _claim_after_cursors(self, asked: dict[str, Any], caps: Caps) -> list[Claim]:
        started = monotonic()
        rows = await self._database.fetch("claim", **asked, **self._asked(caps))
        self._onward_seconds = monotonic() - started
        self._onward_again = monotonic() + _EVERY_SECONDS
        return self._note(rows)

    async def _claim_full(self, asked: dict[str, Any], caps: Caps) -> list[Claim]:
        self._places = {}
        started = monotonic()
        rows = await self._database.fetch("claim", **asked, **self._asked(caps, whole=True))
        seconds = monotonic() - started
        self._slow = seconds > _MUCH * self._onward_seconds + _SLACK_SECONDS
        self._whole_again = monotonic() + max(seconds * _WHOLE_SHARE, _EVERY_SECONDS)
        return self._note(rows)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        """Also from another event loop: the heartbeat has its own, and a handler may block ours."""
        pairs = sorted((claim.ledger_id, claim.run) for claim in claims)
        values = {
            "rows": [row for row, _ in pairs],
            "runs": [run for _, run in pairs],
            "lease": lease,
        }
        if asyncio.get_running_loop() is self._home:
            rows = await self._database.fetch("renew", **values)
        else:
            rows = await self._renewals.fetch("renew", **values)
        held = {row[0] for row in rows}
        return {claim.id for claim in claims if claim.ledger_id in held}

    async def end_renewals(self) -> None:
        self._renewals.close()

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        plain = [one for one in settlements if not has_effects(one)]
        effective = [one for one in settlements if has_effects(one)]
        written: Written = {}
        if plain:
            written = await settle_plain(self._database, plain)
        if effective:
            written |= await settle_with_effects(self._database, effective)
        if any(one.claim.lane or isinstance(one.outcome, Release) for one in settlements):
            self.request_full_scan()
        self.wake()  # a lane may have been freed, a retry may be due before anything else
        return written

    async def wait(self, timeout: timedelta) -> None:
        seconds = timeout.total_seconds()
        if self._due_at is not None:
            seconds = min(seconds, max(self._due_at - monotonic(), 0.0))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), seconds)

    def wake(self) -> None:
        self._bell.set()

    def request_full_scan(self) -> None:
        """Something may be claimable that is older than the last place."""
        self._whole_again = 0.0

    def note_sources(self, sources: AbstractSet[str]) -> None:
        """Events of these were recorded."""
        if not sources <= self._places.keys():
            self.request_full_scan()

    def _asked(self, caps: Caps, *, whole: bool = False) -> dict[str, Any]:
        return {
            "full_scan": whole,
            "sources": list(self._places),
            "since": [since for since, _ in self._places.values()],
            "after": [after for _, after in self._places.values()],
            "holders": list(caps.held),
            "held": list(caps.held.values()),
            "share": caps.share,
            "alone": _ALL if caps.alone is None else caps.alone,
        }

    def _note(self, rows: Sequence[Any]) -> list[Claim]:
        next_due = rows[0]["next_due"]
        self._due_at = None if next_due is None else monotonic() + float(next_due)
        if self._slow:
            self._due_at = min(self._due_at or self._whole_again, self._whole_again)
        claimed = rows if rows[0][0] is not None else ()
        last = {row[_SOURCE]: row for row in claimed}
        self._places |= {source: (row[_DUE_AT], row[0]) for source, row in last.items()}
        return [Claim(*row[:_FIELDS]) for row in claimed]
