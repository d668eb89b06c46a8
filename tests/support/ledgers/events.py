"""Envelopes for tests, and the calls that record them."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ackbox.ingest import Ingest
from ackbox.model import Cursor, Envelope, Receipt, Submission, fingerprint, new_event_id
from ackbox.ports import Ledger

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


async def record_in(
    ledger: Ledger, sent: Sequence[Envelope], cursor: Cursor | None = None
) -> list[Receipt]:
    """Record the envelopes as one submission."""
    return await ledger.record([Submission(sent, cursor)])


async def accept(ingest: Ingest, sent: Envelope) -> Receipt:
    """Submit one event to ingest, and wait until it is durable."""
    (receipt,) = await ingest.submit(Submission([sent]))
    return receipt


def _payload(n: int, size: int) -> bytes:
    return random.Random(n).randbytes(size)
