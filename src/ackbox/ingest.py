"""From an envelope to a durable row: a bounded buffer in front of the ledger, and group commit.

While one batch is being made durable the next one gathers; there is no timer and no added delay. A
caller is answered when its own batch is durable, and never waits longer than the time-out.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from msgspec import Struct

from ackbox.byte_buffer import ByteBuffer
from ackbox.errors import (
    AckboxError,
    InvalidEvent,
    OutcomeUnknown,
    Overloaded,
    Stopped,
    Unavailable,
)
from ackbox.model import Envelope, Receipt, ReceiptKind
from ackbox.ports import Ledger
from ackbox.retry import Uniform, ingest_delays
from ackbox.services import Services
from ackbox.telemetry import Observer, Recorded, RecordFailed, Refused

_BATCH_EVENTS = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_EXPIRY_SECONDS = 0.25
_BUDGET_SECONDS = 60.0
_DRAIN_SECONDS = 0.01
_LONGEST_DELAY = 0.5
"""Senders wait while a failed loop does."""


class Limits(Struct, frozen=True):
    """How much may wait, how long a caller does, and how many batches are stored at a time."""

    buffer_events: int
    buffer_bytes: int
    queue_events: int
    timeout: float
    in_flight: int = 1


class Submission:
    """Envelopes that were handed over together, and who waits for them."""

    __slots__ = ("admitted", "arrived", "envelopes", "waiter")

    def __init__(
        self, envelopes: Sequence[Envelope], waiter: asyncio.Future[list[Receipt]], arrived: float
    ) -> None:
        self.envelopes = envelopes
        self.admitted = len(envelopes)
        self.waiter = waiter
        self.arrived = arrived


class Ingest:
    """One per process. Everything here runs on the event loop."""

    def __init__(
        self,
        ledger: Ledger,
        limits: Limits,
        *,
        backlog: int,
        observe: Observer,
        uniform: Uniform,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._backlog = backlog
        self.recorded = 0
        self._observe = observe
        self.bytes = ByteBuffer(
            limits.buffer_bytes,
            note_refusal=lambda reason: observe(Refused(reason)),
            monotonic=monotonic,
        )
        self._uniform = uniform
        self._sleep = sleep
        self._monotonic = monotonic
        self._admitted = 0
        self._failing_since: float | None = None
        self._last_failure = ""
        self._closed: str | None = None
        self._parcels: deque[Submission] = deque()
        self._deadlines: deque[tuple[float, asyncio.Future[list[Receipt]]]] = deque()
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loops: list[asyncio.Task[None]] = []

    def start(self, services: Services) -> None:
        """From now on what is accepted is made durable."""
        others = (f"ingest-{number}" for number in range(2, self._limits.in_flight + 1))
        names = ["ingest", *others]
        self._loops = [
            *(services.run(name, self._pump, longest_delay=_LONGEST_DELAY) for name in names),
            services.run("ingest-timeouts", self._expire),
        ]

    async def accept(self, envelope: Envelope) -> Receipt:
        """Returns when the event is durable. Raises `NotAccepted` when it was not taken."""
        self._admit(1)
        return (await self._hand_over((envelope,)))[0]

    async def accept_many(self, envelopes: Sequence[Envelope]) -> list[Receipt]:
        """All of them, or `NotAccepted` for all."""
        if not envelopes:
            return []
        self._admit(len(envelopes))
        return await self._hand_over(envelopes)

    def note_writable(self) -> None:
        """Somebody saw a write succeed."""
        self._failing_since = None

    def note_claimed(self, events: int) -> None:
        """So many wait no longer; with a minus, they wait again."""
        self._backlog = max(self._backlog - events, 0)

    def recount(self, waiting: int, recorded_before: int) -> None:
        """So many were counted; what became durable since the count began may be missing there, and
        is added: rather too many for a moment than too few (W7)."""
        self._backlog = waiting + self.recorded - recorded_before

    @property
    def waiting(self) -> int:
        """W7: admitted and not yet durable, or durable and not yet claimed."""
        return self._backlog + self._admitted

    @property
    def capacity(self) -> int:
        """How many more events would be admitted now."""
        in_buffer = self._limits.buffer_events - self._admitted
        return max(min(in_buffer, self._limits.queue_events - self.waiting), 0)

    @property
    def failing(self) -> bool:
        return self._failing_since is not None

    @property
    def failure(self) -> str | None:
        """Why the last batch was not stored; None when batches are stored."""
        return self._last_failure or None if self.failing else None

    @property
    def critical(self) -> bool:
        """Past the budget of L9: the process goes on, and says so."""
        since = self._failing_since
        return since is not None and self._monotonic() - since > _BUDGET_SECONDS

    @property
    def buffered(self) -> tuple[int, int]:
        """Events and bytes in the buffer now."""
        return self._admitted, self.bytes.held

    def refuse_new(self, reason: str) -> None:
        """From now on nothing is taken; what was taken is still made durable."""
        self._closed = reason

    async def close(self) -> None:
        """Make durable what was taken, then stop. A ledger that hangs is not waited for longer than
        any caller would."""
        self.refuse_new("The inbox is shutting down.")
        await self._drained()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._fail(list(self._parcels), Stopped("The inbox has shut down."))
        self._parcels.clear()

    async def _drained(self) -> None:
        """An event set by every batch would cost the hot path."""
        end = self._monotonic() + self._limits.timeout
        while self._admitted and self._monotonic() < end:
            await self._sleep(_DRAIN_SECONDS)

    def _admit(self, events: int) -> None:
        if self._closed is not None:
            raise Stopped(self._closed)
        if self._admitted + events > self._limits.buffer_events:
            raise self._overloaded("buffer_events", "The ingest buffer is full")
        if self.waiting + events > self._limits.queue_events:
            raise self._overloaded("queue", f"{self.waiting} events wait already")
        if (unavailable_reason := self._ledger.unavailable_reason) is not None:
            self._observe(Refused("unavailable"))
            self._note_failing()
            raise Unavailable(unavailable_reason, retry_after=5)
        self._admitted += events

    def _overloaded(self, reason: str, what: str) -> Overloaded:
        self._observe(Refused(reason))
        return Overloaded(f"{what}; try again soon.")

    def _hand_over(self, envelopes: Sequence[Envelope]) -> asyncio.Future[list[Receipt]]:
        now = self._monotonic()
        waiter: asyncio.Future[list[Receipt]] = self._loop.create_future()
        self._parcels.append(Submission(envelopes, waiter, now))
        self._deadlines.append((now + self._limits.timeout, waiter))
        self._bell.set()
        return waiter

    async def _pump(self) -> None:
        await self._bell.wait()
        batch = self._take()
        try:
            await self._store(batch)
        except asyncio.CancelledError:
            self._fail(batch, Stopped("The inbox has shut down."))
            raise
        except Exception as error:
            self._fail(batch, Unavailable("The event could not be stored; try again later."))
            self._note_failure(_events(batch), error, retrying=False)
            raise

    def _take(self) -> list[Submission]:
        batch: list[Submission] = []
        events = size = 0
        while self._parcels and events < _BATCH_EVENTS and size < _BATCH_BYTES:
            parcel = self._parcels.popleft()
            batch.append(parcel)
            for envelope in parcel.envelopes:
                events += 1
                size += len(envelope.payload)
        if not self._parcels:
            self._bell.clear()
        return batch

    async def _store(self, batch: list[Submission]) -> None:
        """L9: try until durable, or until nobody waits any more."""
        delays = ingest_delays(self._uniform)
        while batch := self._still_wanted(batch):
            envelopes = [envelope for parcel in batch for envelope in parcel.envelopes]
            try:
                receipts = await self._ledger.record(envelopes)
            except InvalidEvent as error:
                await self._isolate(batch, error)
                return
            except (OutcomeUnknown, Stopped) as error:
                self._give_up(batch, error)
                return
            except Unavailable as error:
                self._note_failure(len(envelopes), error, retrying=True)
                await self._sleep(min(next(delays), self._patience(batch)))
            else:
                self._resolve(batch, envelopes, receipts)
                return

    async def _isolate(self, batch: list[Submission], error: InvalidEvent) -> None:
        """A batch with something in it that can never be stored is stored parcel by parcel."""
        if len(batch) == 1:
            self._give_up(batch, error)
            return
        for parcel in batch:
            await self._store([parcel])

    def _give_up(self, batch: list[Submission], error: AckboxError) -> None:
        self._note_failure(_events(batch), error, retrying=False)
        self._fail(batch, error)

    def _still_wanted(self, batch: list[Submission]) -> list[Submission]:
        self._resolve_late()
        for parcel in batch:
            if parcel.waiter.done():
                self._dismiss(parcel)
        return [parcel for parcel in batch if parcel.admitted]

    def _patience(self, batch: list[Submission]) -> float:
        return max(batch[-1].arrived + self._limits.timeout - self._monotonic(), 0.0)

    def _resolve(
        self, batch: list[Submission], envelopes: Sequence[Envelope], receipts: Sequence[Receipt]
    ) -> None:
        now = self._monotonic()
        self._failing_since = None
        new = sum(receipt.kind is ReceiptKind.NEW for receipt in receipts)
        self._backlog += new
        self.recorded += new
        start = 0
        seconds: list[float] = []
        for parcel in batch:
            self._dismiss(parcel)
            end = start + len(parcel.envelopes)
            seconds += [now - parcel.arrived] * (end - start)
            if not parcel.waiter.done():
                parcel.waiter.set_result(list(receipts[start:end]))
            start = end
        self._observe(Recorded(envelopes, receipts, seconds))

    def _fail(self, batch: list[Submission], error: Exception) -> None:
        for parcel in batch:
            self._dismiss(parcel)
            if not parcel.waiter.done():
                parcel.waiter.set_exception(error)

    def _dismiss(self, parcel: Submission) -> None:
        """It waits no longer, whatever became of it; counted once."""
        self._admitted -= parcel.admitted
        parcel.admitted = 0

    def _note_failure(self, events: int, error: Exception, *, retrying: bool) -> None:
        if not isinstance(error, InvalidEvent):
            self._note_failing()
            self._last_failure = str(error)
        self._observe(RecordFailed(events, str(error), retrying))

    def _note_failing(self) -> None:
        if self._failing_since is None:
            self._failing_since = self._monotonic()

    async def _expire(self) -> None:
        """Nobody waits longer than the time-out, whatever the ledger does."""
        await asyncio.sleep(_EXPIRY_SECONDS)
        self._resolve_late()

    def _resolve_late(self) -> None:
        now = self._monotonic()
        while self._deadlines and (self._deadlines[0][1].done() or self._deadlines[0][0] <= now):
            _, waiter = self._deadlines.popleft()
            if not waiter.done():
                waiter.set_exception(
                    Unavailable("The database did not answer in time.", retry_after=5)
                )
                self._observe(Refused("timeout"))


def _events(batch: Sequence[Submission]) -> int:
    return sum(len(parcel.envelopes) for parcel in batch)
