"""The responses of the ingest routes, as bytes."""

from typing import Any, NamedTuple

import msgspec

from ackbox.http.problems import CONTENT_TYPE, HttpError, problem_body
from ackbox.http.requests import WHOLE_RESPONSE, Headers, Scope, Send
from ackbox.model import Acknowledgement, Envelope, Handshake, Receipt, ReceiptKind, to_text

NOSNIFF = (b"x-content-type-options", b"nosniff")
JSON = (b"content-type", b"application/json")
_STATUSES = {ReceiptKind.NEW: 202, ReceiptKind.DUPLICATE: 200, ReceiptKind.CONFLICT: 200}
_HEADERS: dict[ReceiptKind, Headers] = {
    ReceiptKind.NEW: (JSON,),
    ReceiptKind.DUPLICATE: (JSON,),
    ReceiptKind.CONFLICT: (JSON, (b"ackbox-conflict", b"true")),
}
_NONE: dict[str, Any] = {}
_PROBLEM = (b"content-type", CONTENT_TYPE)


class Accepted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The receipt that a sender gets (W13). In a batch, each line adds its own status."""

    id: str
    idempotency_key: str
    status: str
    created_at: str
    http_status: int | None = None
    conflict: bool = False
    duplicate: bool | None = None


_encode = msgspec.json.Encoder().encode


class RawResponse(NamedTuple):
    status: int
    body: bytes
    headers: Headers


def accepted(envelope: Envelope, receipt: Receipt) -> RawResponse:
    created_at = to_text(receipt.created_at)
    body = _encode(Accepted(receipt.id, envelope.idempotency_key, receipt.status, created_at))
    return RawResponse(_STATUSES[receipt.kind], body, _HEADERS[receipt.kind])


def received(envelope: Envelope, receipt: Receipt, acknowledgement: Acknowledgement) -> RawResponse:
    """Return the response to a delivery, in the form that its sender understands. A duplicate gets
    the same response as a new event (P2)."""
    if acknowledgement.body is not None:
        content_type = (b"content-type", acknowledgement.content_type.encode())
        return RawResponse(acknowledgement.status, acknowledgement.body, (content_type, NOSNIFF))
    body = _encode(
        Accepted(
            receipt.id,
            envelope.idempotency_key,
            receipt.status,
            to_text(receipt.created_at),
            duplicate=receipt.kind is not ReceiptKind.NEW,
        )
    )
    return RawResponse(acknowledgement.status, body, _HEADERS[receipt.kind])


def greeting(handshake: Handshake) -> RawResponse:
    """Return the response to a handshake. It may repeat what the sender sent, so that no browser
    may take it for a page."""
    content_type = (b"content-type", handshake.content_type.encode())
    return RawResponse(handshake.status, handshake.body, (content_type, NOSNIFF))


def accepted_line(envelope: Envelope, receipt: Receipt) -> bytes:
    return _encode(
        Accepted(
            receipt.id,
            envelope.idempotency_key,
            receipt.status,
            to_text(receipt.created_at),
            _STATUSES[receipt.kind],
            receipt.kind is ReceiptKind.CONFLICT,
        )
    )


def problem(error: HttpError, request_id: str | None = None) -> RawResponse:
    body = problem_body(error.status, str(error), request_id)
    return RawResponse(error.status, body, (_PROBLEM, *error.headers))


async def send_response(scope: Scope, send: Send, response: RawResponse, request_id: str) -> int:
    status, body, headers = response
    headers = (
        *headers,
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
    )
    write = scope.get("extensions", _NONE).get(WHOLE_RESPONSE)
    if write is None or not write(status, headers, body):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    return status
