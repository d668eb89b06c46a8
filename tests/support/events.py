"""Envelopes for tests."""

import random
from datetime import UTC, datetime
from typing import Any

from ackbox.model import Envelope, fingerprint, new_event_id

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def noon() -> datetime:
    """Return a fixed time, as a clock."""
    return NOON


def envelope(
    key: str = "key",
    payload: bytes = b'{"n":1}',
    *,
    source: str = "webhooks",
    event_type: str = "webhook",
    at: datetime = NOON,
    **more: Any,
) -> Envelope:
    """Return an envelope with a new id: every delivery has its own id, even a repeated one."""
    return Envelope(
        id=new_event_id(at, random.getrandbits),
        source=source,
        idempotency_key=key,
        event_type=event_type,
        payload=payload,
        payload_sha256=fingerprint(payload),
        received_at=at,
        **more,
    )


def envelopes(count: int, *, prefix: str = "key", size: int = 16) -> list[Envelope]:
    return [envelope(f"{prefix}-{n}", _payload(n, size)) for n in range(count)]


def _payload(n: int, size: int) -> bytes:
    return random.Random(n).randbytes(size)
