"""`/in/{source}`: the deliveries and handshakes of real senders."""

from datetime import datetime
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
from ackbox.model import (
    Accepted,
    Handshake,
    InboundRequest,
    ReceiptKind,
    Refusal,
    Submission,
)
from ackbox.ports import Webhook
from ackbox.runtime import Runtime

_COMPRESSED = "Content-Encoding must be identity: send the body uncompressed."
_UNCOMPRESSED = frozenset({b"identity", b""})
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
        if b"content-encoding" in headers:
            check_uncompressed(scope)
        ingest, keeper = self._runtime.ingest, self._runtime.keeper
        with Reservation(ingest.bytes) as reservation:
            body = await read_body(receive, self._max_body, reservation)
            request = read_request(scope, body, self._runtime.clock(), request_id)
            match self._webhook.receive(request):
                case Accepted(envelopes, rejected, acknowledgement):
                    if len(envelopes) > 1:
                        reservation.grow(sum(len(item.payload) for item in envelopes[1:]))
                    first, *_ = await ingest.submit(Submission(envelopes))
                    # A delivery that is sent again has the same bad items: they are kept once.
                    if rejected and first.kind is ReceiptKind.NEW:
                        keeper.reject(self._webhook.name, request, rejected, first.id)
                    return received(envelopes[0], first, acknowledgement)
                case Handshake() as handshake:
                    return greeting(handshake)
                case Refusal() as refusal:
                    keeper.refuse(self._webhook.name, request, refusal)
                    raise _refused(refusal)
                case result:
                    assert_never(result)


def _refused(refusal: Refusal) -> HttpError:
    return HttpError(refusal.status, refusal.detail, _SIGNATURE if refusal.status == 401 else ())


def check_uncompressed(scope: Scope) -> None:
    """Raise 415 if the body is compressed. The header may be there twice."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in _UNCOMPRESSED:
            raise HttpError(415, _COMPRESSED)


def read_request(scope: Scope, body: bytes, now: datetime, request_id: str) -> InboundRequest:
    """Return the request as it arrived. The parser leaves white space at the end of a header."""
    headers = [
        (str(name, "latin-1"), str(value.strip(b" \t"), "latin-1"))
        for name, value in scope["headers"]
    ]
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    url = str(path + b"?" + query if query else path, "latin-1")
    return InboundRequest(scope["method"], url, tuple(headers), body, now, request_id)
