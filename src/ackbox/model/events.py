"""Envelopes, receipts and the durable row of an event."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import NewType
from uuid import UUID

from msgspec import Struct

EventId = NewType("EventId", str)
"""A UUIDv7 in its canonical text form, which sorts by the time when the event was accepted."""


class EventKey(Struct, frozen=True):
    """The key of an event, by which its source names it."""

    source: str
    idempotency_key: str


RandomBits = Callable[[int], int]
"""`random.getrandbits`, or a test's replacement for it."""

_UUID_7 = 7 << 76 | 2 << 62
_RAND_B = (1 << 62) - 1


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class OutcomeName(StrEnum):
    """The values of the column `outcome`: the last thing that happened to the event."""

    RETRY = "retry"
    SNOOZED = "snoozed"
    PARKED = "parked"
    REPLAYED = "replayed"
    HANDLED = "handled"
    IGNORED = "ignored"
    SPLIT = "split"
    DISCARDED = "discarded"
    DEAD = "dead"


class ReceiptKind(StrEnum):
    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


class Envelope(Struct, frozen=True, gc=False):
    """An event as a source hands it over, before it is stored (L2). If the key is new, `id` becomes
    the event's id.

    `outcome` is set for a delivery whose items are events of their own: it is recorded as completed
    with the outcome `split`, and never runs. Its items name it in `parent_id`. `fingerprint` is set
    if the sender does not sign the key: the SHA-256 of what the sender signs, mostly the payload.
    An event of this source with this fingerprint, recorded within the last 24 hours, is then the
    same event (F47).
    """

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
    parent_id: EventId | None = None
    outcome: OutcomeName | None = None
    fingerprint: bytes | None = None


class Receipt(Struct, frozen=True, gc=False):
    """The result of recording one envelope, with the row that the ledger has under its key."""

    kind: ReceiptKind
    id: EventId
    status: Status
    created_at: datetime


class Content(Struct, frozen=True):
    """The exact bytes of a payload, and the headers kept with it, as JSON."""

    payload: bytes
    headers: str | None


class Cursor(Struct, frozen=True):
    """The position up to which a source has been read, committed together with the events read."""

    source: str
    cursor: str


class Submission(Struct, frozen=True, gc=False):
    """Envelopes that become durable together, and with the cursor of their source, if any."""

    envelopes: Sequence[Envelope]
    cursor: Cursor | None = None


class Moved(Struct, frozen=True):
    """Submissions that were moved into the ledger: their envelopes, and a receipt for each."""

    envelopes: Sequence[Envelope] = ()
    receipts: Sequence[Receipt] = ()


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
    parent_id: EventId | None
    created_at: datetime
    updated_at: datetime
    last_seen_at: datetime
    processed_at: datetime | None


def new_receipt(envelope: Envelope, created_at: datetime) -> Receipt:
    """Return the receipt of an envelope whose key was new."""
    status = Status.PENDING if envelope.outcome is None else Status.COMPLETED
    return Receipt(ReceiptKind.NEW, envelope.id, status, created_at)


def new_event_id(now: datetime, random_bits: RandomBits) -> EventId:
    """Return a UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits."""
    randomness = random_bits(74)
    millis = int(now.timestamp() * 1000)
    bits = millis << 80 | _UUID_7 | (randomness >> 62) << 64 | randomness & _RAND_B
    text = f"{bits:032x}"
    return EventId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()


def is_event_id(text: str) -> bool:
    """Return whether this is the canonical text form of a UUID. No event has any other id."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
