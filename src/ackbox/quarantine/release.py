"""Release requests of the quarantine on behalf of an operator, or drop them.

A release verifies a request again with the present secrets, records its events through ingest, and
only then removes the request. If the process dies in between, or two operators release one request,
or the sender has sent it again, the idempotency key makes the second attempt a duplicate.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from ackbox.errors import InvalidEvent
from ackbox.model import (
    Caller,
    Clock,
    QuarantineBudget,
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantineRecord,
    Receipt,
    ReceiptKind,
    ReleaseKind,
    ReleaseProgress,
    ReleaseResult,
    Removal,
    RemovalKind,
    Submission,
)
from ackbox.ports import Quarantine, Reader, Webhook
from ackbox.quarantine.keeper import as_refused
from ackbox.quarantine.verification import PageVerification, Verified, refused
from ackbox.telemetry import Observer, QuarantineDropped, QuarantineReleased

Record = Callable[[Submission], Awaitable[Sequence[Receipt]]]
"""Makes the events durable; `Ingest.submit` in a server."""

_PAGE = 100
_CHUNK_BYTES = 1 << 20
"""The size of the requests that are read and released together, which are in memory at once."""
_REMOVALS = {
    ReleaseKind.RELEASED: RemovalKind.RELEASED,
    ReleaseKind.DUPLICATE: RemovalKind.DUPLICATE,
}


class Releases:
    """Verifies with `webhooks`, the declared sources. Items that could not become events go back
    into the quarantine, within the budget."""

    def __init__(
        self,
        store: Quarantine,
        reader: Reader,
        webhooks: Mapping[str, Webhook],
        record: Record,
        *,
        budget: QuarantineBudget,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._store = store
        self._reader = reader
        self._webhooks = webhooks
        self._record = record
        self._budget = budget
        self._clock = clock
        self._observe = observe

    async def release_ids(
        self, ids: Sequence[QuarantineId], caller: Caller
    ) -> Mapping[QuarantineId, ReleaseResult]:
        """Release these requests; return the result for each one that exists. Raise the error of
        ingest if events cannot be recorded now: those that were recorded are released."""
        kept = await self._reader.quarantine.requests(ids)
        page = PageVerification(self._reader, self._webhooks)
        releases = [self._release(request, page) for request in kept]
        results = await asyncio.gather(*releases, return_exceptions=True)
        done = [result for result in results if isinstance(result, ReleaseResult)]
        removals = [
            Removal(result.id, _REMOVALS[result.kind], result.event_id)
            for result in done
            if result.kind in _REMOVALS
        ]
        if removals:
            await self._store.remove(removals, actor=caller.actor, peer=caller.peer)
        self._observe(QuarantineReleased(caller.actor, len(kept), len(removals)))
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return {result.id: result for result in done}

    async def release_matching(
        self, where: QuarantineFilter, caller: Caller
    ) -> AsyncIterator[ReleaseProgress]:
        """Release the requests that match, oldest first, and report after each chunk."""
        counts: Counter[str] = Counter()
        async for chunk in chunks(self._reader, where):
            results = await self.release_ids([record.id for record in chunk], caller)
            counts.update(result.kind for result in results.values())
            yield ReleaseProgress(counts.total(), **counts)

    async def preview(self, where: QuarantineFilter) -> ReleaseProgress:
        """Verify the requests that match, and change nothing."""
        counts: Counter[str] = Counter()
        async for chunk in chunks(self._reader, where):
            results = await self.preview_ids([record.id for record in chunk])
            counts.update(result.kind for result in results.values())
        return ReleaseProgress(counts.total(), **counts)

    async def preview_ids(
        self, ids: Sequence[QuarantineId]
    ) -> Mapping[QuarantineId, ReleaseResult]:
        """Verify these requests, and change nothing."""
        results: dict[QuarantineId, ReleaseResult] = {}
        page = PageVerification(self._reader, self._webhooks)
        for kept in await self._reader.quarantine.requests(ids):
            result = await page.verify(kept)
            if isinstance(result, Verified):
                result = ReleaseResult(kept.record.id, ReleaseKind.RELEASED)
            results[result.id] = result
        return results

    async def _release(self, kept: QuarantinedRequest, page: PageVerification) -> ReleaseResult:
        result = await page.verify(kept)
        if not isinstance(result, Verified):
            return result
        try:
            receipts = await self._record_once(result)
        except InvalidEvent as error:
            return refused(kept, str(error))
        if kept.record.delivery_id is None:
            await self._keep_items(kept.record.source, result, receipts[0])
        is_new = any(receipt.kind is ReceiptKind.NEW for receipt in receipts)
        kind = ReleaseKind.RELEASED if is_new else ReleaseKind.DUPLICATE
        return ReleaseResult(kept.record.id, kind, event_id=receipts[0].id)

    async def _record_once(self, verified: Verified) -> Sequence[Receipt]:
        """Record the events of a delivery, or wait for the item of this delivery that does."""
        if verified.recording is None:
            now = self._clock()
            envelopes = [replace(each, received_at=now) for each in verified.accepted.envelopes]
            verified.recording = asyncio.ensure_future(self._record(Submission(envelopes)))
        return await verified.recording

    async def _keep_items(self, source: str, verified: Verified, delivery: Receipt) -> None:
        """Keep the items of a delivery that could not become events, unless the delivery was
        known: its items were kept when it was recorded."""
        items = verified.accepted.rejected
        if items and delivery.kind is ReceiptKind.NEW:
            kept = [as_refused(source, verified.request, item, delivery.id) for item in items]
            await self._store.keep(kept, self._budget)


class Drops:
    """Deletes requests of the quarantine."""

    def __init__(self, store: Quarantine, reader: Reader, *, observe: Observer) -> None:
        self._store = store
        self._reader = reader
        self._observe = observe

    async def drop_ids(
        self, ids: Sequence[QuarantineId], caller: Caller
    ) -> AbstractSet[QuarantineId]:
        """Drop these requests; return the ids of those that existed."""
        removals = [Removal(number, RemovalKind.DROPPED) for number in ids]
        dropped = await self._store.remove(removals, actor=caller.actor, peer=caller.peer)
        self._observe(QuarantineDropped(caller.actor, len(dropped)))
        return dropped

    async def drop_matching(self, where: QuarantineFilter, caller: Caller) -> AsyncIterator[int]:
        """Drop the requests that match, oldest first, and report how many after each chunk."""
        dropped = 0
        async for chunk in chunks(self._reader, where):
            dropped += len(await self.drop_ids([record.id for record in chunk], caller))
            yield dropped

    async def preview(self, where: QuarantineFilter) -> int:
        """Count the requests that match."""
        return sum([len(chunk) async for chunk in chunks(self._reader, where)])


async def chunks(
    reader: Reader, where: QuarantineFilter
) -> AsyncIterator[Sequence[QuarantineRecord]]:
    """Yield the requests that match and exist now, oldest first, in chunks of limited size. The
    number of those that exist now bounds the walk, even if requests arrive faster than it goes."""
    left = sum(used.requests for used in (await reader.quarantine.usage()).values())
    cursor: QuarantineId | None = None
    while left > 0:
        page = await reader.quarantine.page(where, limit=min(_PAGE, left), cursor=cursor)
        for chunk in _split(page.items):
            yield chunk
        left -= len(page.items)
        if (cursor := page.next) is None:
            return


def _split(records: Sequence[QuarantineRecord]) -> Iterator[list[QuarantineRecord]]:
    chunk: list[QuarantineRecord] = []
    size = 0
    for record in records:
        if chunk and size + record.size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += record.size
    if chunk:
        yield chunk
