"""What the ingest routes say back, as bytes."""

import msgspec

from ackbox.http.problems import CONTENT_TYPE, HttpError, problem_body
from ackbox.http.requests import Send
from ackbox.model import Envelope, Receipt, ReceiptKind, to_text

Headers = tuple[tuple[bytes, bytes], ...]

JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", CONTENT_TYPE)


class Accepted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The receipt a sender gets (W13); a line of a batch adds its own status."""

    id: str
    idempotency_key: str
    status: str
    created_at: str
    http_status: int | None = None
    conflict: bool = False


_encode = msgspec.json.Encoder().encode


def http_status(receipt: Receipt) -> int:
    return 202 if receipt.kind is ReceiptKind.NEW else 200


def accepted_body(envelope: Envelope, receipt: Receipt) -> bytes:
    created_at = to_text(receipt.created_at)
    return _encode(Accepted(receipt.id, envelope.idempotency_key, receipt.status, created_at))


def accepted_line(envelope: Envelope, receipt: Receipt) -> bytes:
    return _encode(
        Accepted(
            receipt.id,
            envelope.idempotency_key,
            receipt.status,
            to_text(receipt.created_at),
            http_status(receipt),
            receipt.kind is ReceiptKind.CONFLICT,
        )
    )


async def send_answer(
    send: Send, status: int, body: bytes, request_id: str, headers: Headers = (JSON,)
) -> int:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *headers,
                (b"content-length", b"%d" % len(body)),
                (b"x-request-id", request_id.encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
    return status


async def send_problem(send: Send, error: HttpError, request_id: str) -> int:
    body = problem_body(error.status, str(error), request_id)
    return await send_answer(send, error.status, body, request_id, (_PROBLEM, *error.headers))
