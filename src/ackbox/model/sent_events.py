"""Events that the application's own code sends: with `inbox.send`, with `tx.send`, or from SQL."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.errors import InvalidEvent
from ackbox.model.checks import check_name
from ackbox.model.events import Envelope, EventId, RandomBits
from ackbox.model.seal import seal

APP_SOURCE = "app"
SENT_LIMIT = 16 * 1024 * 1024
"""The largest payload in bytes. The function `enqueue` of PostgreSQL has the same limit."""
_JSON, _BYTES = "application/json", "application/octet-stream"
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)


class SentEvent(Struct, frozen=True, gc=False):
    """The fields of a sent event, checked."""

    source: str
    idempotency_key: str
    event_type: str
    lane: str | None
    content_type: str
    payload: bytes


def make_sent_event(
    event_type: str, payload: Any, *, key: str, source: str, lane: str | None
) -> SentEvent:
    """Check the arguments of a call. A payload of bytes is kept as it is; any other value becomes
    JSON. Raise `InvalidEvent` if an argument is invalid."""
    names = {"event_type": event_type, "key": key, "source": source}
    for name, value in (names if lane is None else {**names, "lane": lane}).items():
        if not isinstance(value, str):
            raise InvalidEvent(f"{name} must be a text, not {type(value).__name__}")
        check_name(name, value)
    is_bytes = isinstance(payload, bytes | bytearray | memoryview)
    encoded = bytes(payload) if is_bytes else _encode(payload)
    if len(encoded) > SENT_LIMIT:
        raise InvalidEvent(f"payload must have at most {SENT_LIMIT} bytes, not {len(encoded)}")
    return SentEvent(source, key, event_type, lane, _BYTES if is_bytes else _JSON, encoded)


def seal_sent_event(
    sent: SentEvent,
    now: datetime,
    random_bits: RandomBits,
    *,
    transport: str = "app",
    parent: EventId | None = None,
) -> Envelope:
    """Return the envelope of a sent event. `parent` is the event whose handler sent it."""
    return seal(
        sent.payload,
        now,
        random_bits,
        source=sent.source,
        idempotency_key=sent.idempotency_key,
        event_type=sent.event_type,
        lane=sent.lane,
        content_type=sent.content_type,
        transport=transport,
        parent_id=parent,
    )


def _encode(payload: object) -> bytes:
    try:
        return msgspec.json.encode(payload)
    except _UNENCODABLE as error:
        raise InvalidEvent(f"payload cannot be written as JSON: {error}") from None
