"""An event as a sender sends it."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.model import Envelope, RandomBits, seal


class Delivery(Struct, frozen=True, kw_only=True):
    """An event to post. A payload of bytes is sent as it is; any other value becomes JSON."""

    event_type: str
    payload: Any
    key: str
    source: str = "webhooks"
    lane: str | None = None
    source_sequence: int | None = None
    source_emitted_at: datetime | None = None


def make_envelope(delivery: Delivery, now: datetime, random_bits: RandomBits) -> Envelope:
    """Make the envelope as the HTTP route does; raise `InvalidEvent` where the route refuses."""
    given = delivery.payload
    payload = given if isinstance(given, bytes) else msgspec.json.encode(given)
    return seal(
        payload,
        now,
        random_bits,
        source=delivery.source,
        idempotency_key=delivery.key,
        event_type=delivery.event_type,
        lane=delivery.lane,
        source_sequence=delivery.source_sequence,
        source_emitted_at=delivery.source_emitted_at,
        transport="test",
    )
