"""Verify requests of the quarantine again, page by page, and leave the event loop to other work."""

import asyncio
from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ackbox.model import (
    Accepted,
    Handshake,
    InboundRequest,
    QuarantinedRequest,
    Receipt,
    Refusal,
    ReleaseKind,
    ReleaseResult,
)
from ackbox.ports import Reader, Webhook

_NOT_DECLARED = "The source {} is not declared."
_IS_HANDSHAKE = "The request is a handshake, which has no event."
_DELIVERY_IS_GONE = "The delivery of this item is not in the ledger any more."


class Verified(Struct, eq=False):
    """A kept request that is right now: the request of its delivery, and the events in it. Items of
    one delivery share this object, and `recording`, which records the events."""

    request: InboundRequest
    accepted: Accepted
    still_bad: Mapping[bytes, str]
    """The detail of each item that could not become an event, by the body of the item."""
    recording: asyncio.Future[Sequence[Receipt]] | None = None


class PageVerification:
    """Verifies the requests of one page with `webhooks`, one request at a time. A delivery with
    many kept items is read and verified once."""

    def __init__(self, reader: Reader, webhooks: Mapping[str, Webhook]) -> None:
        self._reader = reader
        self._webhooks = webhooks
        self._turn = asyncio.Lock()
        self._results: dict[Hashable, Verified | str] = {}

    async def verify(self, kept: QuarantinedRequest) -> Verified | ReleaseResult:
        """Return the events of the request, or why it stays. Other tasks run before each request,
        and a caller that is cancelled verifies no further request."""
        record = kept.record
        if (webhook := self._webhooks.get(record.source)) is None:
            detail = _NOT_DECLARED.format(record.source)
            return ReleaseResult(record.id, ReleaseKind.NO_SOURCE, detail)
        async with self._turn:
            await asyncio.sleep(0)
            result = await self._verify_once(webhook, kept)
        if isinstance(result, str):
            return refused(kept, result)
        if record.delivery_id is not None and kept.request.body in result.still_bad:
            return refused(kept, result.still_bad[kept.request.body])
        return result

    async def _verify_once(self, webhook: Webhook, kept: QuarantinedRequest) -> Verified | str:
        key = _key(kept)
        if key not in self._results:
            delivery = await self._find_delivery(kept)
            self._results[key] = _receive(webhook, delivery) if delivery else _DELIVERY_IS_GONE
        return self._results[key]

    async def _find_delivery(self, kept: QuarantinedRequest) -> InboundRequest | None:
        """Return the request as it arrived. The sender signed the whole delivery: of an item, the
        delivery is in the ledger."""
        if kept.record.delivery_id is None:
            return kept.request
        content = await self._reader.content(kept.record.delivery_id)
        return None if content is None else replace(kept.request, body=content.payload)


def refused(kept: QuarantinedRequest, detail: str) -> ReleaseResult:
    return ReleaseResult(kept.record.id, ReleaseKind.REFUSED, detail)


def _key(kept: QuarantinedRequest) -> Hashable:
    """Return a value that is equal only for items of one delivery that arrived with the same
    headers, which contain the signature."""
    if kept.record.delivery_id is None:
        return kept.record.id
    return kept.record.source, kept.record.delivery_id, replace(kept.request, body=b"")


def _receive(webhook: Webhook, request: InboundRequest) -> Verified | str:
    """Return the events of the request, or why it is refused."""
    match webhook.receive(request):
        case Refusal(_, _, detail):
            return detail
        case Handshake():
            return _IS_HANDSHAKE
        case Accepted() as accepted:
            bad = {item.body: item.detail for item in reversed(accepted.rejected)}
            return Verified(request, accepted, bad)
