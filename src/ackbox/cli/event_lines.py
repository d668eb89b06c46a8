"""The lines of an export, read again. Each line becomes an envelope, or an `InvalidEvent` that says
what is wrong with it."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from random import getrandbits
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ackbox.errors import InvalidEvent
from ackbox.model import (
    Envelope,
    EventFilter,
    Status,
    check_moment,
    check_name,
    check_sequence,
    fingerprint,
    new_event_id,
)

_ESCAPED = 6  # the longest form of a payload byte in JSON: \u0000
_OTHER_FIELDS = 256 * 1024


class Line(Struct, frozen=True):
    """The fields of a line that an import uses. The others describe runs in the old ledger."""

    idempotency_key: str
    source: str = "webhooks"
    event_type: str = "webhook"
    payload: str | None = None
    payload_base64: str | None = None
    payload_sha256: str | None = None
    content_type: str = "application/json"
    headers: dict[str, str] | None = None
    source_sequence: int | None = None
    source_emitted_at: datetime | None = None
    lane: str | None = None
    verified_by: str | None = None
    request_id: str | None = None
    status: Status = Status.PENDING
    attempts: int = 0


def read_lines(stream: BinaryIO, max_body: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number, or None for a line that is too long to be kept in memory."""
    limit = max_body * _ESCAPED + _OTHER_FIELDS
    for number in count(1):
        line = stream.readline(limit)
        if not line:
            return
        if len(line) == limit and not line.endswith(b"\n"):
            while (line := stream.readline(limit)) and not line.endswith(b"\n"):
                pass
            yield number, None
        elif not line.isspace():
            yield number, line


def parse_line(text: bytes) -> Line:
    try:
        text.decode()  # msgspec does not check the UTF-8 of fields that it skips
        return msgspec.json.decode(text, type=Line)
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"it is not valid UTF-8 at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidEvent(f"it is not an event in JSON: {error}") from None


def matches(line: Line, where: EventFilter) -> bool:
    if where.status is not None and line.status is not where.status:
        return False
    return line.attempts > 0 or not where.retrying


def to_envelope(line: Line, now: datetime, max_body: int) -> Envelope:
    """Make a new event with the content of the old event, but with its own id and time."""
    payload = _check_payload(line, max_body)
    return Envelope(
        id=new_event_id(now, getrandbits),
        source=check_name("source", line.source),
        idempotency_key=check_name("idempotency_key", line.idempotency_key),
        event_type=check_name("event_type", line.event_type),
        payload=payload,
        payload_sha256=fingerprint(payload),
        received_at=now,
        content_type=check_name("content_type", line.content_type),
        headers=None if line.headers is None else msgspec.json.encode(line.headers).decode(),
        source_sequence=check_sequence(line.source_sequence),
        source_emitted_at=check_moment(line.source_emitted_at),
        lane=_check_optional("lane", line.lane),
        transport="import",
        verified_by=_check_optional("verified_by", line.verified_by),
        request_id=_check_optional("request_id", line.request_id),
    )


def _check_payload(line: Line, max_body: int) -> bytes:
    payload = _decode_payload(line)
    if len(payload) > max_body:
        raise InvalidEvent(
            f"its payload has more than {max_body} bytes; raise ACKBOX_MAX_BODY_BYTES"
        )
    if line.payload_sha256 not in (None, fingerprint(payload).hex()):
        raise InvalidEvent("its payload does not match payload_sha256")
    return payload


def _decode_payload(line: Line) -> bytes:
    match line.payload, line.payload_base64:
        case str() as text, None:
            return text.encode()
        case None, str() as text:
            try:
                return b64decode(text, validate=True)
            except NotBase64 as error:
                raise InvalidEvent(f"payload_base64 is not base64: {error}") from None
        case _:
            raise InvalidEvent("it must have either payload or payload_base64")


def _check_optional(what: str, value: str | None) -> str | None:
    return None if value is None else check_name(what, value)
