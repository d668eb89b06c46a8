"""Rows for a ledger file, written past ackbox: for the raw insert, and for filled ledgers."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from bench import traffic

Row = tuple[str | bytes | int | None, ...]

INSERT = """
INSERT INTO events (
    id, source, idempotency_key, event_type, content_type, payload, payload_sha256,
    transport, request_id, status, outcome, attempts, run,
    created_at, updated_at, last_seen_at, processed_at, claimable_at
)
VALUES (?, 'webhooks', ?, ?, 'application/json', ?, ?, 'http', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
PAYLOAD = traffic.PAYLOAD.encode()
FINGERPRINT = sha256(PAYLOAD).digest()


def pending(run: str) -> Iterator[Row]:
    """What ackbox would have written for the webhooks of one load."""
    for key in traffic.keys(run):
        now = datetime.now(UTC)
        yield _row(_time_ordered_id(now), key, ("pending", None, 0, 0), now, None)


def completed(count: int, until: datetime) -> Iterator[Row]:
    """History in order of arrival, ten a second, under random keys."""
    arrival = until - timedelta(milliseconds=100 * count)
    for _ in range(count):
        arrival += timedelta(milliseconds=100)
        state = ("completed", "done", 1, 1)
        yield _row(_time_ordered_id(arrival), str(uuid.uuid4()), state, arrival, arrival)


def _row(
    event_id: str,
    key: str,
    state: tuple[str, str | None, int, int],
    arrival: datetime,
    processed: datetime | None,
) -> Row:
    created = _text(arrival)
    done = _text(processed) if processed else None
    request_id = event_id
    return (
        *(event_id, key, traffic.EVENT_TYPE, PAYLOAD, FINGERPRINT, request_id),
        *(*state, created, done or created, created, done, None if done else created),
    )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time_ordered_id(moment: datetime) -> str:
    """A UUIDv7, as ackbox makes them: new ids land at the end of their index."""
    millis = int(moment.timestamp() * 1000)
    chance = uuid.uuid4().hex
    stamp = f"{millis:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-8{chance[3:6]}-{chance[6:18]}"
