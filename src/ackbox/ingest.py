"""Make envelopes durable: a bounded buffer in front of the ledger, and group commit.

While one batch commits, the next is collected; there is no timer and no added delay. A caller gets
its receipts when its own batch is durable, and never waits longer than the time-out.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain
from time import monotonic

from msgspec import Struct

from ackbox.byte_buffer import ByteBuffer
from ackbox.errors import (
    OUTAGES,
    AckboxError,
    ConnectionLost,
    InvalidEvent,
    OutcomeUnknown,
    Overloaded,
    Stopped,
    Unavailable,
)
from ackbox.model import Envelope, Moved, Receipt, ReceiptKind, Status, Submission
from ackbox.ports import Ledger
from ackbox.retry import Uniform, ingest_delays
from ackbox.services import Services
from ackbox.telemetry import Observer, Recorded, RecordFailed, Refused

_BATCH_EVENTS = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_EXPIRY_SECONDS = 0.25
_BUDGET_SECONDS = 60.0
_DRAIN_SECONDS = 0.01
_LOST = "The connection was lost while the event was stored; send it again."
_LONGEST_DELAY = 0.5
"""The longest delay before a failed loop restarts. It is short because senders wait meanwhile."""


class Limits(Struct, frozen=True):
    """How much may wait, how long a caller waits, how many batches commit at a time, and how long
    writes may fail before that is critical."""

    buffer_events: int
    buffer_bytes: int
    queue_events: int
    timeout: float
    in_flight: int = 1
    budget_seconds: float = _BUDGET_SECONDS


class Waiting(Struct, eq=False):
    """A submission and its waiting caller.

    `admitted` is the number of its events that still count as not yet durable. `may_be_stored` is
    False only after the ledger has reported that it stored nothing: while a submission is in
    flight, nobody knows. `is_lost` stays True after a try that ended in `ConnectionLost`: whatever
    a later try says, that try may have stored the events.
    """

    submission: Submission
    waiter: asyncio.Future[list[Receipt]]
    arrived: float
    admitted: int
    may_be_stored: bool = True
    is_lost: bool = False


Batch = list[Waiting]
"""The submissions that are recorded in one call of the ledger."""


class Ingest:
    """The buffer and the group commit of one process. All methods run on the event loop."""

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
        self._queue: deque[Waiting] = deque()
        self._in_flight: list[Batch] = []
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loops: list[asyncio.Task[None]] = []

    def start(self, services: Services) -> None:
        """Start the loops that make accepted events durable."""
        more = (f"ingest-{number}" for number in range(2, self._limits.in_flight + 1))
        names = ["ingest", *more]
        self._loops = [
            *(
                services.run(name, self._record_next, longest_delay=_LONGEST_DELAY)
                for name in names
            ),
            services.run("ingest-timeouts", self._expire_and_wait),
        ]

    def submit(self, submission: Submission) -> asyncio.Future[list[Receipt]]:
        """Add the submission to the next batch: all of its envelopes, or none.

        The future has one receipt for each envelope when all of them are durable. Raise
        `Overloaded` if there is no room for all of them, `Stopped` if ingest is closed, and
        `Unavailable` if the ledger accepts no writes. A submission that is larger than the buffer
        is admitted if the buffer is empty, and one that is larger than the queue if no event waits:
        a delivery of many events could never be accepted otherwise.
        """
        events = len(submission.envelopes)
        if self._closed is not None:
            raise Stopped(self._closed)
        if self._admitted + events > self._limits.buffer_events and self._admitted:
            raise self._overloaded("buffer_events", "The ingest buffer is full")
        if self.waiting + events > self._limits.queue_events and self.waiting:
            raise self._overloaded("queue", f"{self.waiting} events wait already")
        if (unavailable_reason := self._ledger.unavailable_reason) is not None:
            raise self._unavailable(unavailable_reason)
        self._admitted += events
        waiter: asyncio.Future[list[Receipt]] = self._loop.create_future()
        self._queue.append(Waiting(submission, waiter, self._monotonic(), events))
        self._wake.set()
        return waiter

    def note_writable(self) -> None:
        """Note that a write succeeded, so that ingest no longer counts as failing."""
        self._failing_since = None

    def note_claimed(self, events: int) -> None:
        """Subtract this number of events from the backlog; a negative number adds them again."""
        self._backlog = max(self._backlog - events, 0)

    def note_moved(self, moved: Moved) -> None:
        """Count events that were recorded without passing through the buffer."""
        new = sum(receipt.kind is ReceiptKind.NEW for receipt in moved.receipts)
        self._backlog += new
        self.recorded += new
        self._observe(Recorded(moved.envelopes, moved.receipts, ()))

    def recount(self, waiting: int, recorded_before: int) -> None:
        """Replace the backlog by a count of the store. Events that became durable since the count
        began may be missing from it and are added: for a moment the backlog is rather too large
        than too small (W7)."""
        self._backlog = waiting + self.recorded - recorded_before

    @property
    def waiting(self) -> int:
        """Events that are admitted and not yet durable, or durable and not yet claimed (W7)."""
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
        """Why the last batch was not recorded; None while batches are recorded."""
        return self._last_failure or None if self.failing else None

    @property
    def critical(self) -> bool:
        """Whether ingest has failed for longer than the budget of L9. The process continues and
        reports itself as critical."""
        since = self._failing_since
        return since is not None and self._monotonic() - since > self._limits.budget_seconds

    @property
    def buffered(self) -> tuple[int, int]:
        """The number of events and of bytes in the buffer."""
        return self._admitted, self.bytes.held

    def refuse_new(self, reason: str) -> None:
        """Refuse new events from now on; admitted events are still made durable."""
        self._closed = reason

    async def close(self) -> None:
        """Make the admitted events durable, then stop. If the ledger hangs, give up after the same
        time-out as a caller."""
        self.refuse_new("The inbox is shutting down.")
        await self._wait_until_drained()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._fail(self._queue, Stopped("The inbox has shut down."))
        self._queue.clear()

    async def _wait_until_drained(self) -> None:
        """Poll until every admitted event is durable or has failed. An `asyncio.Event` that each
        batch sets would slow the hot path."""
        end = self._monotonic() + self._limits.timeout
        while self._admitted and self._monotonic() < end:
            await self._sleep(_DRAIN_SECONDS)

    def _overloaded(self, reason: str, message: str) -> Overloaded:
        self._observe(Refused(reason))
        return Overloaded(f"{message}; try again soon.")

    def _unavailable(self, reason: str) -> Unavailable:
        self._observe(Refused("unavailable"))
        self._note_failing()
        return Unavailable(reason, retry_after=5)

    async def _record_next(self) -> None:
        await self._wake.wait()
        batch = self._collect_batch()
        self._in_flight.append(batch)
        try:
            await self._record(batch)
        except asyncio.CancelledError:
            self._fail(batch, OutcomeUnknown("The inbox has shut down."))
            raise
        except Exception as error:
            kind = Unavailable if isinstance(error, AckboxError) else OutcomeUnknown
            self._fail(batch, kind("The event could not be stored; try again later."))
            self._note_failure(_events(batch), error, retrying=False)
            raise
        finally:
            self._in_flight.remove(batch)

    def _collect_batch(self) -> Batch:
        """Take as many submissions as fit into one batch; drop those whose callers are gone."""
        batch: Batch = []
        events = size = 0
        while self._queue and events < _BATCH_EVENTS and size < _BATCH_BYTES:
            waiting = self._queue.popleft()
            if waiting.waiter.done():
                self._uncount(waiting)
                continue
            batch.append(waiting)
            for envelope in waiting.submission.envelopes:
                events += 1
                size += len(envelope.payload)
        if not self._queue:
            self._wake.clear()
        return batch

    async def _record(self, batch: Batch) -> None:
        """Retry until the batch is durable, or until no caller waits any more (L9)."""
        delays: Iterator[float] | None = None
        while batch:
            try:
                receipts = await self._ledger.record([waiting.submission for waiting in batch])
            except InvalidEvent as error:
                await self._isolate(batch, error)
                return
            except OUTAGES as error:
                if not _can_retry(error):
                    self._give_up(batch, error)
                    return
                self._note_failure(_events(batch), error, retrying=True)
                _note_try(batch, is_lost=isinstance(error, ConnectionLost))
                delays = delays or ingest_delays(self._uniform)
                await self._sleep(min(next(delays), self._seconds_left(batch)))
                batch = self._drop_expired(batch)
                for waiting in batch:
                    waiting.may_be_stored = True
            else:
                self._resolve(batch, receipts)
                return

    async def _isolate(self, batch: Batch, error: InvalidEvent) -> None:
        """Record each submission alone, because one of them can never be stored."""
        if len(batch) == 1:
            self._give_up(batch, error)
            return
        for waiting in batch:
            await self._record(self._drop_expired([waiting]))

    def _give_up(self, batch: Batch, error: AckboxError) -> None:
        self._note_failure(_events(batch), error, retrying=False)
        self._fail(batch, error)

    def _drop_expired(self, batch: Batch) -> Batch:
        self.expire_waiters()
        for waiting in batch:
            if waiting.waiter.done():
                self._uncount(waiting)
        return [waiting for waiting in batch if not waiting.waiter.done()]

    def _seconds_left(self, batch: Batch) -> float:
        return max(batch[-1].arrived + self._limits.timeout - self._monotonic(), 0.0)

    def _resolve(self, batch: Batch, receipts: Sequence[Receipt]) -> None:
        """Give each caller its receipts: its events are durable."""
        now = self._monotonic()
        self._failing_since = None
        new = sum(r.kind is ReceiptKind.NEW and r.status is Status.PENDING for r in receipts)
        self._backlog += new
        self.recorded += new
        envelopes: list[Envelope] = []
        seconds: list[float] = []
        for waiting in batch:
            start, end = len(envelopes), len(envelopes) + waiting.admitted
            envelopes += waiting.submission.envelopes
            seconds += [now - waiting.arrived] * waiting.admitted
            self._admitted -= waiting.admitted
            waiting.admitted = 0
            if not waiting.waiter.done():
                waiting.waiter.set_result(list(receipts[start:end]))
        self._observe(Recorded(envelopes, receipts, seconds))

    def _fail(self, batch: Iterable[Waiting], error: Exception) -> None:
        """Give each caller the error. An invalid event was refused by every try."""
        for waiting in batch:
            self._uncount(waiting)
            if not waiting.waiter.done():
                is_unknown = waiting.is_lost and not isinstance(error, InvalidEvent)
                waiting.waiter.set_exception(OutcomeUnknown(_LOST) if is_unknown else error)

    def _uncount(self, waiting: Waiting) -> None:
        """Count the events of a submission as no longer admitted, once."""
        self._admitted -= waiting.admitted
        waiting.admitted = 0

    def _note_failure(self, events: int, error: Exception, *, retrying: bool) -> None:
        if not isinstance(error, InvalidEvent):
            self._note_failing()
            self._last_failure = str(error)
        self._observe(RecordFailed(events, str(error), retrying))

    def _note_failing(self) -> None:
        if self._failing_since is None:
            self._failing_since = self._monotonic()

    async def _expire_and_wait(self) -> None:
        await asyncio.sleep(_EXPIRY_SECONDS)
        self.expire_waiters()

    def expire_waiters(self) -> None:
        """End the waiting of callers at their time-out, whatever the ledger does."""
        self._expire(chain(*self._in_flight), in_flight=True)
        self._expire(self._queue, in_flight=False)

    def _expire(self, waiters: Iterable[Waiting], *, in_flight: bool) -> None:
        latest_arrival = self._monotonic() - self._limits.timeout
        for waiting in waiters:
            if waiting.arrived <= latest_arrival and not waiting.waiter.done():
                is_unknown = in_flight and waiting.may_be_stored
                kind = OutcomeUnknown if is_unknown else Unavailable
                error = kind("The database did not respond in time.", retry_after=5)
                waiting.waiter.set_exception(error)
                self._observe(Refused("timeout"))


def _can_retry(error: AckboxError) -> bool:
    return isinstance(error, Unavailable | ConnectionLost) and not isinstance(error, Stopped)


def _note_try(batch: Batch, *, is_lost: bool) -> None:
    """Note that a try failed, before the next begins."""
    for waiting in batch:
        waiting.is_lost = waiting.is_lost or is_lost
        waiting.may_be_stored = waiting.is_lost


def _events(batch: Batch) -> int:
    return sum(len(waiting.submission.envelopes) for waiting in batch)
