"""`EventQueue` by a Redis stream: it says which events are new, the database says who has them.

Each new event is announced to one instance, where NOTIFY would wake them all. The stream is never
the truth: what it loses, the database's own claim finds, which is asked whenever the stream has
nothing, and at least once a second.
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
from ackbox.queues.stream import LONGEST, Announced, Stream
from ackbox.services import Services

_ASK_SECONDS = 1.0
# An instance that turns to other work still listens to the end of this: one event may be announced
# to it that another would have taken sooner.
_LISTEN_SECONDS = 0.2
_CLOSE_SECONDS = 1.0


class RedisQueue:
    """Implements `Relay`. `otherwise` tells workers when the stream cannot."""

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
        self._ask_at = clock() + _ASK_SECONDS
        self._heard: Announced = []
        self._rung = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._unsent: deque[tuple[EventId, str]] = deque(maxlen=LONGEST)
        self._something_unsent = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._sending = services.run("redis-announcements", self._send_next)

    def publish(self, events: Mapping[EventId, str]) -> None:
        if events:
            self._unsent.extend(events.items())
            self._something_unsent.set()

    async def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        caps: Caps,
        ids: Sequence[EventId] | None = None,
    ) -> list[Claim]:
        """First those announced, or first what the database finds; then the other, if need be."""
        ask = _Ask(self._database, worker, lease)
        if ids is not None:
            return await ask.claim(limit, caps, ids)
        self._rung.clear()
        if self._clock() < self._ask_at:
            claims = await self._claim_announced(ask, limit, caps)
            if claims and self._clock() < self._ask_at:
                return claims
            second = self._ask_database
        else:
            claims = await self._ask_database(ask, limit, caps)
            if self._clock() >= self._ask_at:
                return claims
            second = self._claim_announced
        return await _and(claims, second(ask, limit - len(claims), _with(caps, claims)))

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
        again_in = [_claimable_in(settlement) for settlement in settlements]
        soonest = min((delay for delay in again_in if delay is not None), default=_ASK_SECONDS)
        self._ask_at = min(self._ask_at, self._clock() + soonest)
        return written

    async def wait(self, timeout: timedelta) -> None:
        """For an announcement, or the database's own bell."""
        bell = asyncio.create_task(self._database.wait(timeout))
        try:
            while not self._rung.is_set() and not bell.done():
                listening = self._listen()
                await asyncio.wait([bell, listening], return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    listening.result()
        finally:
            await _end(bell)

    async def send(self) -> None:
        """What was announced; once, for if this fails, the database finds it."""
        async with self._one_at_a_time:
            events = dict(self._unsent)
            self._unsent.clear()
            self._something_unsent.clear()
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

    async def _claim_announced(self, ask: "_Ask", limit: int, caps: Caps) -> list[Claim]:
        announced, self._heard = self._heard[:limit], self._heard[limit:]
        if len(announced) < limit:
            announced += await self._stream.read(limit - len(announced))
        wanted = within_share(announced, caps)
        if len(wanted) < len(announced):
            self._ask_at = self._clock()
        return await ask.claim(limit, caps, wanted) if wanted else []

    async def _ask_database(self, ask: "_Ask", limit: int, caps: Caps) -> list[Claim]:
        found = await ask.claim(limit, caps)
        there_is_more = len(found) >= limit
        self._ask_at = self._clock() + (0.0 if there_is_more else _ASK_SECONDS)
        return found

    def _listen(self) -> asyncio.Task[None]:
        """Not cancelled when something else ends the wait: that would cost the connection."""
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._hear())
        return self._listening

    async def _hear(self) -> None:
        await self._stream.until_worth_trying()
        if heard := await self._stream.read(1, block=_LISTEN_SECONDS):
            self._heard += heard
            self._rung.set()

    async def _send_next(self) -> None:
        await self._something_unsent.wait()
        await self.send()


class _Ask:
    """The database's own queue, asked for one worker."""

    def __init__(self, database: EventQueue, worker: WorkerId, lease: timedelta) -> None:
        self._database = database
        self._worker = worker
        self._lease = lease

    async def claim(
        self, limit: int, caps: Caps, ids: Sequence[EventId] | None = None
    ) -> list[Claim]:
        return await self._database.claim(
            self._worker, limit=limit, lease=self._lease, caps=caps, ids=ids
        )


def within_share(announced: Announced, caps: Caps) -> list[EventId]:
    """Whether other sources wait, only the database knows. So no source gets more than its share
    here; the rest is left to the database."""
    held = Counter(caps.held)
    most = caps.share if caps.alone is None else min(caps.share, caps.alone)
    wanted = []
    for event_id, source in announced:
        if held[source] < most:
            held[source] += 1
            wanted.append(event_id)
    return wanted


def _claimable_in(settlement: Settlement) -> float | None:
    """Seconds until it, or the next of its lane, is due: nobody announces those."""
    match settlement.outcome:
        case RetryLater(delay=delay) | Snoozed(delay=delay) | Release(parked=False, delay=delay):
            return max(delay.total_seconds(), 0.0)
        case _:
            return None if settlement.claim.lane is None else 0.0


def _with(caps: Caps, claims: Sequence[Claim]) -> Caps:
    held = Counter(caps.held)
    held.update(claim.source for claim in claims)
    return replace(caps, held=held)


async def _and(claims: list[Claim], more: Awaitable[list[Claim]]) -> list[Claim]:
    """What is claimed must reach who claimed it; the next claim meets the same trouble."""
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
