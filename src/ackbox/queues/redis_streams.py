"""`EventQueue` over a Redis stream: the stream names new events, the database decides on claims.

Each new event is published to one instance, whereas NOTIFY would wake all of them. The stream only
carries hints: a claim on the database finds what the stream loses. The database is queried whenever
the stream has nothing, and at least once a second.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import timedelta
from time import monotonic

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
    Suspect,
    WorkerId,
)
from ackbox.ports import EventQueue
from ackbox.queues.stream import MAX_ENTRIES, Entries, Stream
from ackbox.services import Services

_DATABASE_SECONDS = 1.0
# The longest blocking read of the stream. The read is not cancelled when the instance finds other
# work, so until it ends it may receive an event that an idle instance would have run sooner.
_LISTEN_SECONDS = 0.2
_CLOSE_SECONDS = 1.0


class RedisQueue:
    """Implements `Relay`. If the stream accepts no entries, `fallback` wakes the workers."""

    def __init__(
        self,
        database: EventQueue,
        stream: Stream,
        *,
        fallback: Callable[[], None],
        services: Services,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._stream = stream
        self._fallback = fallback
        self._clock = clock
        self._database_claim_at = clock() + _DATABASE_SECONDS
        self._received: Entries = []
        self._wake_up = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._unsent: deque[tuple[EventId, str]] = deque(maxlen=MAX_ENTRIES)
        self._has_unsent = asyncio.Event()
        self._send_lock = asyncio.Lock()
        self._sending = services.run("redis-publisher", self._send_next)

    def publish(self, events: Mapping[EventId, str]) -> None:
        if events:
            self._unsent.extend(events.items())
            self._has_unsent.set()

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        """Claim published events first, then events that the database finds. When a query of the
        database is due, begin with the database instead. The second claim is made only if the first
        leaves room."""
        database = _DatabaseQueue(self._database, worker, lease)
        self._wake_up.clear()
        if self._clock() < self._database_claim_at:
            claims = await self._claim_published(database, limit, caps)
            if claims and self._clock() < self._database_claim_at:
                return claims
            second = self._claim_any
        else:
            claims = await self._claim_any(database, limit, caps)
            if self._clock() >= self._database_claim_at:
                return claims
            second = self._claim_published
        more = second(database, limit - len(claims), _add_held(caps, claims))
        return await _add_claims(claims, more)

    async def claim_these(
        self, worker: WorkerId, ids: Sequence[EventId], *, limit: int, lease: timedelta
    ) -> list[Claim]:
        return await self._database.claim_these(worker, ids, limit=limit, lease=lease)

    async def suspect(self) -> Suspect | None:
        return await self._database.suspect()

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        return await self._database.claim_suspect(worker, event_id, lease=lease)

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        return await self._database.renew(claims, lease=lease)

    async def end_renewals(self) -> None:
        await self._database.end_renewals()

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        written = await self._database.settle(settlements)
        delays = [_claimable_in(settlement) for settlement in settlements]
        soonest = min((delay for delay in delays if delay is not None), default=_DATABASE_SECONDS)
        self._database_claim_at = min(self._database_claim_at, self._clock() + soonest)
        return written

    async def wait(self, timeout: timedelta) -> None:
        """Wait for a published event, or for a wake-up of the database's own queue."""
        database = asyncio.create_task(self._database.wait(timeout))
        try:
            while not self._wake_up.is_set() and not database.done():
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
            if events and not await self._stream.add(events):
                self._fallback()

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.send()
        for task in (self._sending, self._listening):
            if task is not None:
                await _end(task)
        await self._stream.close()

    async def _claim_published(
        self, database: "_DatabaseQueue", limit: int, caps: Caps
    ) -> list[Claim]:
        entries, self._received = self._received[:limit], self._received[limit:]
        if len(entries) < limit:
            entries += await self._stream.read(limit - len(entries))
        ids = within_share(entries, caps)
        if len(ids) < len(entries):
            self._database_claim_at = self._clock()
        return await database.claim_these(ids) if ids else []

    async def _claim_any(self, database: "_DatabaseQueue", limit: int, caps: Caps) -> list[Claim]:
        claims = await database.claim(limit, caps)
        may_have_more = len(claims) >= limit
        self._database_claim_at = self._clock() + (0.0 if may_have_more else _DATABASE_SECONDS)
        return claims

    def _listen(self) -> asyncio.Task[None]:
        """Return the task that reads the stream. The task is not cancelled when another event ends
        the wait, because the cancellation would cost the connection."""
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._receive())
        return self._listening

    async def _receive(self) -> None:
        await self._stream.wait_for_retry()
        if entries := await self._stream.read(1, block=_LISTEN_SECONDS):
            self._received += entries
            self._wake_up.set()

    async def _send_next(self) -> None:
        await self._has_unsent.wait()
        await self.send()


class _DatabaseQueue:
    """The database's own queue, for one worker and lease."""

    def __init__(self, database: EventQueue, worker: WorkerId, lease: timedelta) -> None:
        self._database = database
        self._worker = worker
        self._lease = lease

    async def claim(self, limit: int, caps: Caps) -> list[Claim]:
        return await self._database.claim(self._worker, limit=limit, lease=self._lease, caps=caps)

    async def claim_these(self, ids: Sequence[EventId]) -> list[Claim]:
        return await self._database.claim_these(
            self._worker, ids, limit=len(ids), lease=self._lease
        )


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
    events of a lane are not published to the stream, so the database must be queried when they are
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
