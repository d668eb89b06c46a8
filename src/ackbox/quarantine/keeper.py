"""Keep refused requests for an operator: in memory first, then in the store, in batches.

Nothing here delays or fails a response. If the store is slow or away, requests wait in a small
buffer, and when that is full, the newest are counted and dropped.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from ackbox.errors import OUTAGES
from ackbox.model import (
    EventId,
    InboundRequest,
    QuarantineBudget,
    Refusal,
    RefusedRequest,
    RejectedItem,
)
from ackbox.ports import Quarantine, QuarantineReader
from ackbox.quarantine.refusal_rates import RefusalRates
from ackbox.services import Services
from ackbox.telemetry import (
    Observer,
    Quarantined,
    QuarantineLoss,
    QuarantineMeasured,
    SourceRefused,
)

_BUFFER_BYTES = 8 << 20
_BATCH_BYTES = 1 << 20
_BATCH_REQUESTS = 100
_PAUSE_SECONDS = 0.05
"""The time between two batches, so that most of the writer's time is left to events."""
_MEASURE_SECONDS = 10.0
_OUTAGE_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class Keeper:
    """The buffer of one process in front of the quarantine, with an equal share for each of the
    `sources`, which are declared. All methods run on the event loop."""

    def __init__(
        self,
        store: Quarantine,
        reader: QuarantineReader,
        budget: QuarantineBudget,
        *,
        sources: int,
        observe: Observer,
        rates: RefusalRates | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.rates = rates or RefusalRates()
        self._store = store
        self._reader = reader
        self._budget = budget
        self._buffer_share = min(_BUFFER_BYTES // max(sources, 1), budget.share)
        self._observe = observe
        self._sleep = sleep
        self._buffer: deque[RefusedRequest] = deque()
        self._buffered: Counter[str] = Counter()
        self._keeping = asyncio.Lock()
        self._wake = asyncio.Event()
        self._wake.set()  # measure at the start
        self._loop: asyncio.Task[None] | None = None

    def start(self, services: Services) -> None:
        self._loop = services.run("quarantine", self.wait_and_keep)

    def refuse(self, source: str, request: InboundRequest, refusal: Refusal) -> None:
        """Count a refusal, and keep the request if it should be kept."""
        self.rates.note(source)
        self._observe(SourceRefused(source, refusal.reason))
        if refusal.keep:
            self._add(RefusedRequest(source, request, refusal.reason, refusal.detail))

    def reject(
        self,
        source: str,
        request: InboundRequest,
        items: Iterable[RejectedItem],
        delivery_id: EventId,
    ) -> None:
        """Keep the items of a delivery that could not become events. The delivery itself is the
        event `delivery_id`."""
        for item in items:
            self.rates.note(source)
            self._observe(SourceRefused(source, item.reason))
            self._add(as_refused(source, request, item, delivery_id))

    async def wait_and_keep(self) -> None:
        """Wait for a request, or for the time of the next measurement; then keep and measure. After
        a failure, the next call does not wait."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _MEASURE_SECONDS)
        self._wake.clear()
        try:
            await self.keep_buffered()
            self._observe(QuarantineMeasured(await self._reader.usage()))
        except OUTAGES:  # the store reports its own outages
            self._wake.set()
            await self._sleep(_OUTAGE_SECONDS)
        except BaseException:
            self._wake.set()
            raise

    async def keep_buffered(self) -> None:
        async with self._keeping:
            while batch := self._next_batch():
                await self._keep(batch)
                await self._sleep(_PAUSE_SECONDS)

    async def close(self) -> None:
        """Keep what is in the buffer, unless the store takes too long. A batch that is being kept
        is not kept a second time."""
        with suppress(TimeoutError, *OUTAGES):
            await asyncio.wait_for(self.keep_buffered(), _CLOSE_SECONDS)
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._drop([*self._buffer])

    def _add(self, refused: RefusedRequest) -> None:
        if not self._budget.total:  # QUARANTINE_BYTES=0: keeping is switched off
            return
        if (loss := self._find_loss(refused.source, refused.size)) is not None:
            self._observe(Quarantined(refused.source, 0, 1, loss))
            return
        self._buffered[refused.source] += refused.size
        self._buffer.append(refused)
        self._wake.set()

    def _find_loss(self, source: str, size: int) -> QuarantineLoss | None:
        """Return why the buffer cannot hold a request, or None if it can. A single request may be
        larger than the share of its source in the buffer, if it can fit into the quarantine."""
        if size > self._budget.largest:
            return QuarantineLoss.TOO_LARGE
        held = self._buffered[source]
        is_in_share = not held or held + size <= self._buffer_share
        is_in_budget = self._buffered.total() + size <= self._budget.total
        return None if is_in_share and is_in_budget else QuarantineLoss.NO_MEMORY

    def _next_batch(self) -> list[RefusedRequest]:
        batch: list[RefusedRequest] = []
        size = 0
        for refused in self._buffer:
            size += refused.size
            if len(batch) == _BATCH_REQUESTS or (batch and size > _BATCH_BYTES):
                break
            batch.append(refused)
        return batch

    async def _keep(self, batch: Sequence[RefusedRequest]) -> None:
        """Keep the oldest requests of the buffer. During an outage they stay in the buffer; after
        any other error they are dropped, because it would come again."""
        try:
            kept = await self._store.keep(batch, self._budget)
        except (asyncio.CancelledError, *OUTAGES):
            raise
        except BaseException:
            self._drop(batch)
            raise
        self._remove(batch)
        self._report(batch, kept)

    def _drop(self, batch: Sequence[RefusedRequest]) -> None:
        self._remove(batch)
        self._report(batch, [False] * len(batch), QuarantineLoss.NOT_WRITTEN)

    def _remove(self, batch: Sequence[RefusedRequest]) -> None:
        for refused in batch:
            self._buffer.popleft()
            self._buffered[refused.source] -= refused.size

    def _report(
        self,
        batch: Sequence[RefusedRequest],
        kept: Sequence[bool],
        loss: QuarantineLoss = QuarantineLoss.FULL,
    ) -> None:
        total = Counter(refused.source for refused in batch)
        fitted = Counter(r.source for r, is_kept in zip(batch, kept, strict=True) if is_kept)
        for source, count in total.items():
            self._observe(Quarantined(source, fitted[source], count - fitted[source], loss))


def as_refused(
    source: str, request: InboundRequest, item: RejectedItem, delivery_id: EventId
) -> RefusedRequest:
    """Return an item that could not become an event as a request to keep."""
    body = replace(request, body=item.body)
    return RefusedRequest(source, body, item.reason, item.detail, delivery_id)
