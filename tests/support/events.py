"""Envelopes for tests, made in one line."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ackbox.model import Envelope, fingerprint, new_event_id

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def noon() -> datetime:
    """A clock that stands still."""
    return NOON


def ticking(start: datetime = NOON, step: timedelta = timedelta(milliseconds=1)) -> "Ticking":
    return Ticking(start, step)


class Ticking:
    """A clock that moves on by one step each time it is read."""

    def __init__(self, start: datetime, step: timedelta) -> None:
        self._next = start
        self._step = step

    def __call__(self) -> datetime:
        now, self._next = self._next, self._next + self._step
        return now


def envelope(
    key: str = "key",
    payload: bytes = b'{"n":1}',
    *,
    source: str = "webhooks",
    event_type: str = "webhook",
    at: datetime = NOON,
    **more: Any,
) -> Envelope:
    """A new envelope with an id of its own, as every delivery has, also a repeated one."""
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


def batches(sizes: Iterator[int], *, prefix: str = "key", size: int = 16) -> list[list[Envelope]]:
    """Batches of these sizes; no key comes twice."""
    return [envelopes(n, prefix=f"{prefix}-{index}", size=size) for index, n in enumerate(sizes)]


def _payload(n: int, size: int) -> bytes:
    return random.Random(n).randbytes(size)
