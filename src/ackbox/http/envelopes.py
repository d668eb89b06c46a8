"""Turn a sender's JSON into an envelope, and find everything that is invalid in it (F28, F41)."""

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ackbox.errors import InvalidEvent
from ackbox.http.nesting import is_deeper_than
from ackbox.model import Clock, Envelope, RandomBits, seal

SOURCE = "webhooks"
NESTING_LIMIT = 512
_TOO_DEEP = f"the payload must not be nested deeper than {NESTING_LIMIT} levels"
_NO_KEY = "idempotency_key is required, in the body or as header Idempotency-Key"


class Posted(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The body of `POST /webhooks`, and each line of a batch."""

    payload: Raw | UnsetType = UNSET
    idempotency_key: str | None = None
    event_type: str = "webhook"
    lane: str | None = None
    source_sequence: int | None = None
    source_emitted_at: datetime | None = None


class EnvelopeReader:
    """Turns bytes into envelopes, and raises `InvalidEvent` with the reason if they are invalid."""

    def __init__(self, clock: Clock, random_bits: RandomBits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._decode = msgspec.json.Decoder(Posted).decode

    def read(self, body: bytes, header_key: bytes | None, request_id: str) -> Envelope:
        """Return the envelope of a body, or of a line of a batch, which has no header."""
        posted = self._parse(body)
        if posted.payload is UNSET:
            raise InvalidEvent("payload is required: any JSON value")
        key = posted.idempotency_key
        if header_key is not None:
            key = _agreed_key(key, header_key)
        if key is None:
            raise InvalidEvent(_NO_KEY)
        return seal(
            bytes(posted.payload),
            self._clock(),
            self._random_bits,
            source=SOURCE,
            idempotency_key=key,
            event_type=posted.event_type,
            source_sequence=posted.source_sequence,
            source_emitted_at=posted.source_emitted_at,
            lane=posted.lane,
            request_id=request_id,
        )

    def _parse(self, body: bytes) -> Posted:
        try:
            body.decode()  # msgspec checks the structure of a raw value, but not its UTF-8
            posted = self._decode(body)
            # Each level takes a byte, and the body itself adds one level.
            if len(body) > NESTING_LIMIT and is_deeper_than(body, NESTING_LIMIT + 1):
                raise InvalidEvent(_TOO_DEEP)
        except UnicodeDecodeError as error:
            raise InvalidEvent(f"the body must be UTF-8; byte {error.start} is not") from None
        except msgspec.ValidationError as error:
            raise InvalidEvent(str(error)) from None
        except msgspec.DecodeError as error:
            raise InvalidEvent(f"the body must be a JSON object: {_reason(body, error)}") from None
        except RecursionError:
            raise InvalidEvent(_TOO_DEEP) from None
        return posted


def _reason(body: bytes, error: msgspec.DecodeError) -> str:
    if not body:
        return "it is empty"
    if str(error) == "Input data was truncated":
        return "it ends too early, or has a lone surrogate near its end"
    return str(error)


def _agreed_key(in_body: str | None, header: bytes) -> str:
    try:
        in_header = header.decode()
    except UnicodeDecodeError:
        raise InvalidEvent("The header Idempotency-Key must be UTF-8.") from None
    if in_body not in (None, in_header):
        raise InvalidEvent("idempotency_key and the header Idempotency-Key must agree")
    return in_header
