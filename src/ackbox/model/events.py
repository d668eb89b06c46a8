"""What a source hands over, and the durable row that it becomes."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import NewType

from msgspec import Struct

EventId = NewType("EventId", str)
"""A UUIDv7 in its canonical text form: sorts by the time the event was accepted."""

RandomBits = Callable[[int], int]
"""`random.getrandbits`, or a test's own."""

_UUID_7 = 7 << 76 | 2 << 62
_RAND_B = (1 << 62) - 1


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class OutcomeName(StrEnum):
    """How an event got where it is, as the column `outcome` says it."""

    RETRY = "retry"
    SNOOZED = "snoozed"
    PARKED = "parked"
    REPLAYED = "replayed"
    HANDLED = "handled"
    IGNORED = "ignored"
    DISCARDED = "discarded"
    DEAD = "dead"


class ReceiptKind(StrEnum):
    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


class Envelope(Struct, frozen=True, gc=False):
    """What a source hands over (L2). `id` becomes the event's id if this turns out to be new."""

    id: EventId
    source: str
    idempotency_key: str
    event_type: str
    payload: bytes
    payload_sha256: bytes
    received_at: datetime
    content_type: str = "application/json"
    headers: str | None = None
    source_sequence: int | None = None
    source_emitted_at: datetime | None = None
    lane: str | None = None
    transport: str = "http"
    verified_by: str | None = None
    request_id: str | None = None


class Receipt(Struct, frozen=True, gc=False):
    """What the ledger says of one envelope: the row that now stands for its key."""

    kind: ReceiptKind
    id: EventId
    status: Status
    created_at: datetime


class Content(Struct, frozen=True):
    """What a sender handed over: the exact bytes, and the headers kept with them as JSON."""

    payload: bytes
    headers: str | None


class Cursor(Struct, frozen=True):
    """How far a source has been read; committed together with the events read up to there."""

    source: str
    cursor: str


class EventRecord(Struct, frozen=True):
    """One row of the ledger, without its payload."""

    ledger_id: int
    id: EventId
    source: str
    idempotency_key: str
    event_type: str
    content_type: str
    payload_bytes: int
    payload_sha256: str
    status: Status
    outcome: str | None
    attempts: int
    run: int
    last_error: str | None
    error_code: str | None
    retry_after: datetime | None
    processor_id: str | None
    lease_until: datetime | None
    ingest_count: int
    conflict_count: int
    source_sequence: int | None
    source_emitted_at: datetime | None
    lane: str | None
    transport: str
    verified_by: str | None
    request_id: str | None
    created_at: datetime
    updated_at: datetime
    last_seen_at: datetime
    processed_at: datetime | None


def new_event_id(now: datetime, random_bits: RandomBits) -> EventId:
    """UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 bits of chance."""
    chance = random_bits(74)
    millis = int(now.timestamp() * 1000)
    bits = millis << 80 | _UUID_7 | (chance >> 62) << 64 | chance & _RAND_B
    text = f"{bits:032x}"
    return EventId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()
