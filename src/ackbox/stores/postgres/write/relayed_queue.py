"""`EventQueue` with a relay: the relay names new events, the database decides on claims.

Each new event is published to one instance, whereas NOTIFY would wake all of them. The relay only
carries hints: a claim on the database finds what the relay loses. The database is queried whenever
the relay has nothing, and at least once a second.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from ackbox.errors import AckboxError
from ackbox.model import (
    Caps,
    Claim,
    EventId,
    Outcome,
    Release,
    RetryLater,
    Settlement,
    Snoozed,
    WorkerId,
)
from ackbox.ports import Relay
from ackbox.stores.postgres.database import Database
from ackbox.stores.postgres.write.queue import PostgresQueue

_DATABASE_SECONDS = 1.0
# The longest blocking read of the relay. The read is not cancelled when the instance finds other
# work, so until it ends it may receive an event that an idle instance would have run sooner.
_LISTEN_SECONDS = 0.2
_CLOSE_SECONDS = 1.0
_MAX_UNSENT = 10_000  # a longer backlog is read from the database

Entries = Sequence[tuple[EventId, str]]
"""Events and their sources."""


class RelayedQueue(PostgresQueue):
    """A queue that claims published events first. If the relay accepts no events, `fallback` wakes
    the workers."""

    def __init__(
        self,
        database: Database,
        relay: Relay,
        *,
        fallback: Callable[[], None],
        scan_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(database, scan_seconds=scan_seconds)
        self._relay = relay
        self._fallback = fallback
        self._monotonic = monotonic
        self._database_claim_at = monotonic() + _DATABASE_SECONDS
        self._received: list[tuple[EventId, str]] = []
        self._has_received = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._unsent: deque[tuple[EventId, str]] = deque(maxlen=_MAX_UNSENT)
        self._has_unsent = asyncio.Event()
        self._send_lock = asyncio.Lock()

    def publish(self, events: Mapping[EventId, str]) -> None:
        if events:
            self._unsent.extend(events.items())
            self._has_unsent.set()

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        """Claim published events. Claim from the database too if nothing was published, or if a
        query of the database has become due meanwhile.

        If a query of the database is due at the beginning, claim from the database first. Then
        claim published events, if there is room left.
        """

        async def claim_published(limit: int, caps: Caps) -> list[Claim]:
            ids = await self._receive_within(limit, caps)
            return await self.claim_these(worker, ids, limit=limit, lease=lease) if ids else []

        async def claim_any(limit: int, caps: Caps) -> list[Claim]:
            claims = await PostgresQueue.claim(self, worker, limit=limit, lease=lease, caps=caps)
            pause = 0.0 if len(claims) >= limit else _DATABASE_SECONDS
            self._database_claim_at = self._monotonic() + pause
            return claims

        self._has_received.clear()
        if self._monotonic() < self._database_claim_at:
            claims = await claim_published(limit, caps)
            if claims and self._monotonic() < self._database_claim_at:
                return claims
            second = claim_any
        else:
            claims = await claim_any(limit, caps)
            if self._monotonic() >= self._database_claim_at:
                return claims
            second = claim_published
        more = second(limit - len(claims), _add_held(caps, claims))
        return await _add_claims(claims, more)

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        written = await super().settle(settlements)
        delays = [_claimable_in(settlement) for settlement in settlements]
        soonest = min((delay for delay in delays if delay is not None), default=_DATABASE_SECONDS)
        self._database_claim_at = min(self._database_claim_at, self._monotonic() + soonest)
        return written

    async def wait(self, timeout: timedelta) -> None:
        """Wait for a published event, or for a wake-up of the database's own queue."""
        database = asyncio.create_task(super().wait(timeout))
        try:
            while not self._has_received.is_set() and not database.done():
                listening = self._listen()
                await asyncio.wait([database, listening], return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    listening.result()
        finally:
            await _end(database)

    async def send(self) -> None:
        """Send the events that were published. A failure is not retried: the database finds the
        events."""
        async with self._send_lock:
            events = dict(self._unsent)
            self._unsent.clear()
            self._has_unsent.clear()
            if events and not await self._relay.add(events):
                self._fallback()

    async def send_next(self) -> None:
        await self._has_unsent.wait()
        await self.send()

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.send()
        if self._listening is not None:
            await _end(self._listening)
        await self._relay.close()

    async def _receive_within(self, limit: int, caps: Caps) -> list[EventId]:
        """Return published events that fit into the shares of their sources."""
        entries, self._received = self._received[:limit], self._received[limit:]
        if len(entries) < limit:
            entries += await self._relay.read(limit - len(entries))
        ids = within_share(entries, caps)
        if len(ids) < len(entries):
            self._database_claim_at = self._monotonic()
        return ids

    def _listen(self) -> asyncio.Task[None]:
        """Return the task that reads the relay. The task is not cancelled when another event ends
        the wait, because the cancellation would cost the connection."""
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._receive())
        return self._listening

    async def _receive(self) -> None:
        if entries := await self._relay.read(1, block=_LISTEN_SECONDS):
            self._received += entries
            self._has_received.set()


def within_share(entries: Entries, caps: Caps) -> list[EventId]:
    """Return the ids that fit into the share of their source. The rest is left to an ordinary
    claim, because only the database knows whether other sources wait."""
    held = Counter(caps.held)
    limit = caps.share if caps.alone is None else min(caps.share, caps.alone)
    ids = []
    for event_id, source in entries:
        if held[source] < limit:
            held[source] += 1
            ids.append(event_id)
    return ids


def _claimable_in(settlement: Settlement) -> float | None:
    """Return the seconds until the event, or the next event of its lane, is due. Retries and next
    events of a lane are not published, so the database must be queried when they are
    due."""
    match settlement.outcome:
        case RetryLater(delay=delay) | Snoozed(delay=delay) | Release(parked=False, delay=delay):
            return max(delay.total_seconds(), 0.0)
        case _:
            return None if settlement.claim.lane is None else 0.0


def _add_held(caps: Caps, claims: Sequence[Claim]) -> Caps:
    held = Counter(caps.held)
    held.update(claim.source for claim in claims)
    return replace(caps, held=held)


async def _add_claims(claims: list[Claim], more: Awaitable[list[Claim]]) -> list[Claim]:
    """Add more claims. If that fails, return the claims so far, so that they are not lost: the next
    claim meets the same error."""
    try:
        return claims + await more
    except AckboxError:
        if not claims:
            raise
        return claims


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
