"""The lines of an export, read again. Each line becomes an envelope, or an `InvalidEvent` that says
what is wrong with it."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import count
from random import getrandbits
from typing import Any, BinaryIO
from uuid import UUID

import msgspec
from msgspec import Struct, defstruct, structs

from ackbox.errors import InvalidEvent
from ackbox.model import Envelope, EventFilter, EventId, OutcomeName, Status, fingerprint, seal

_ESCAPED = 6  # the longest form of a payload byte in JSON: \u0000
_OTHER_FIELDS = 256 * 1024


class OtherFields(Struct, frozen=True):
    """The fields of a line that do not reach the event as they are: the payload and the headers,
    which are converted, and fields that only check or select the line."""

    payload: str | None = None
    payload_base64: str | None = None
    payload_sha256: str | None = None
    headers: dict[str, str] | None = None
    id: Any = None
    status: Status = Status.PENDING
    outcome: Any = None
    attempts: int = 0


class Line(Struct, frozen=True):
    """A line of an export: the fields that the new event takes over as they are, and others. Fields
    that describe runs in the old ledger are left out."""

    copied: Mapping[str, Any]
    other: OtherFields


def _make_copied() -> type[Struct]:
    """Return a type with the fields of `Envelope` that an import copies: all but those that a new
    event gets anew, and those in `OtherFields`."""
    left_out = {"received_at", "transport", "fingerprint", *OtherFields.__struct_fields__}
    fields = [field for field in structs.fields(Envelope) if field.name not in left_out]
    defaults = {"source": "webhooks", "event_type": "webhook"}
    return defstruct(
        "Copied",
        [
            (field.name, _decoded_type(field.type), defaults.get(field.name, field.default))
            for field in fields
        ],
        kw_only=True,
    )


def _decoded_type(annotation: Any) -> Any:
    return UUID | None if annotation == EventId | None else annotation


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
        copied = structs.asdict(msgspec.json.decode(text, type=_COPIED))
        ids = {name: str(value) for name, value in copied.items() if isinstance(value, UUID)}
        return Line(copied | ids, msgspec.json.decode(text, type=OtherFields))
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"it is not valid UTF-8 at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidEvent(f"it is not an event in JSON: {error}") from None


def matches(line: Line, where: EventFilter) -> bool:
    if where.status is not None and line.other.status is not where.status:
        return False
    return line.other.attempts > 0 or not where.retrying


def to_envelope(line: Line, now: datetime, max_body: int) -> Envelope:
    """Make a new event with the content of the old event, but with its own id and time. A delivery
    whose items were events stays one."""
    headers = line.other.headers
    return seal(
        _check_payload(line.other, max_body),
        now,
        getrandbits,
        headers=None if headers is None else msgspec.json.encode(headers).decode(),
        transport="import",
        outcome=OutcomeName.SPLIT if line.other.outcome == OutcomeName.SPLIT else None,
        **line.copied,
    )


def _check_payload(line: OtherFields, max_body: int) -> bytes:
    payload = _decode_payload(line)
    if len(payload) > max_body:
        raise InvalidEvent(
            f"its payload has more than {max_body} bytes; raise ACKBOX_MAX_BODY_BYTES"
        )
    if line.payload_sha256 not in (None, fingerprint(payload).hex()):
        raise InvalidEvent("its payload does not match payload_sha256")
    return payload


def _decode_payload(line: OtherFields) -> bytes:
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


_COPIED = _make_copied()
