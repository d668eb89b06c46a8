"""`/in/{source}`: the deliveries and handshakes of real senders."""

from typing import assert_never

from ackbox.byte_buffer import Reservation
from ackbox.http.problems import HttpError
from ackbox.http.requests import (
    Receive,
    Scope,
    Send,
    check_length,
    read_body,
)
from ackbox.http.responses import RawResponse, greeting, received
from ackbox.ingest import Ingest
from ackbox.model import (
    Accepted,
    Handshake,
    InboundRequest,
    ReceiptKind,
    Refusal,
    Submission,
)
from ackbox.ports import Webhook
from ackbox.quarantine import Keeper
from ackbox.runtime import Runtime

_COMPRESSED = "Content-Encoding must be identity: send the body uncompressed."
_UNCOMPRESSED = frozenset({"identity", ""})
_SIGNATURE = ((b"www-authenticate", b"Signature"),)


class SourceRoute:
    """Receives the requests of one source."""

    def __init__(self, runtime: Runtime, webhook: Webhook) -> None:
        self._runtime = runtime
        self._webhook = webhook
        self._max_body = runtime.settings.max_body_bytes

    async def receive(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        request_id: str,
        receive: Receive,
        _send: Send,
    ) -> RawResponse:
        check_length(headers, self._max_body)
        sent = read_all_headers(scope)
        ingest, keeper = self._runtime.ingest, self._runtime.keeper
        with Reservation(ingest.bytes) as reservation:
            body = await read_body(receive, self._max_body, reservation)
            request = InboundRequest(
                scope["method"], _url(scope), sent, body, self._runtime.clock(), request_id
            )
            match self._webhook.receive(request):
                case Accepted() as accepted:
                    return await self._record(ingest, keeper, request, accepted)
                case Handshake() as handshake:
                    return greeting(handshake)
                case Refusal() as refusal:
                    keeper.refuse(self._webhook.name, request, refusal)
                    raise _refused(refusal)
                case result:
                    assert_never(result)

    async def _record(
        self, ingest: Ingest, keeper: Keeper, request: InboundRequest, accepted: Accepted
    ) -> RawResponse:
        """Record the events of a delivery together. The response is about the first one, which is
        the delivery itself if there are several. Its bad items are kept once: a delivery that is
        sent again has them again."""
        first, *_ = await ingest.submit(Submission(accepted.envelopes))
        if accepted.rejected and first.kind is ReceiptKind.NEW:
            keeper.reject(self._webhook.name, request, accepted.rejected, first.id)
        return received(accepted.envelopes[0], first, accepted.acknowledgement)


def _refused(refusal: Refusal) -> HttpError:
    return HttpError(refusal.status, refusal.detail, _SIGNATURE if refusal.status == 401 else ())


def read_all_headers(scope: Scope) -> tuple[tuple[str, str], ...]:
    """Return every header as it was sent. Raise 415 if the body is compressed."""
    headers = tuple(
        (name.decode("latin-1"), value.decode("latin-1").strip(" \t"))
        for name, value in scope["headers"]
    )
    for name, value in headers:
        if name == "content-encoding" and value.lower() not in _UNCOMPRESSED:
            raise HttpError(415, _COMPRESSED)
    return headers


def _url(scope: Scope) -> str:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
