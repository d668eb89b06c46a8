"""Make envelopes from the fields that a source gives. No other module makes envelopes."""

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from ackbox.model.checks import check_moment, check_name, check_sequence
from ackbox.model.events import Envelope, RandomBits, fingerprint, new_event_id


def seal(  # noqa: PLR0913 - one argument for each field that a source usually sets
    payload: bytes,
    now: datetime,
    random_bits: RandomBits,
    *,
    source: str,
    idempotency_key: str,
    event_type: str,
    source_sequence: int | None = None,
    source_emitted_at: datetime | None = None,
    lane: str | None = None,
    request_id: str | None = None,
    headers: str | None = None,
    **others: str | bool | None,
) -> Envelope:
    """Return an envelope with a new id that is received now. `others` are further fields, such as
    `verified_by`. Raise `InvalidEvent` if a field is invalid."""
    check_name("source", source)
    check_name("idempotency_key", idempotency_key)
    check_name("event_type", event_type)
    if lane is not None:
        check_name("lane", lane)
    if request_id is not None:
        check_name("request_id", request_id)
    envelope = Envelope(
        id=new_event_id(now, random_bits),
        source=source,
        idempotency_key=idempotency_key,
        event_type=event_type,
        payload=payload,
        payload_sha256=fingerprint(payload),
        received_at=now,
        headers=headers,
        source_sequence=check_sequence(source_sequence),
        source_emitted_at=check_moment(source_emitted_at),
        lane=lane,
        request_id=request_id,
    )
    return _add(envelope, others) if others else envelope


def _add(envelope: Envelope, fields: Mapping[str, str | bool | None]) -> Envelope:
    for name, value in fields.items():
        if isinstance(value, str):
            check_name(name, value)
    return replace(envelope, **fields)
