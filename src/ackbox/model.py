"""The values everything else speaks of: pure, immutable, without a clock or any I/O."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import NewType

from msgspec import Struct

from ackbox.errors import InvalidEvent

EventId = NewType("EventId", str)
"""A UUIDv7 in its canonical text form: sorts by the time the event was accepted."""

Clock = Callable[[], datetime]
"""Wall-clock time, always aware and in UTC."""

RandomBits = Callable[[int], int]
"""`random.getrandbits`, or a test's own."""

NAME_LIMIT = 255
_UUID_7 = 7 << 76 | 2 << 62
_RAND_B = (1 << 62) - 1
_SQL_INTEGER = range(-(1 << 63), 1 << 63)


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


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


class Checkpoint(Struct, frozen=True):
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


class Order(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


class EventFilter(Struct, frozen=True):
    """Which events to list. `None` means: any. `retrying`: only those that have run and failed."""

    status: Status | None = None
    retrying: bool = False
    source: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Page(Struct, frozen=True):
    """Some events and the place to go on from; `next` is None when there are no more.

    A page may hold fewer events than asked for and still have a `next`: a reader looks at a bounded
    number of rows a page, so that a rare filter never becomes a long read (L13).
    """

    items: Sequence[EventRecord]
    next: int | None


class Stats(Struct, frozen=True):
    """How many events stand in each state, and since when the oldest pending one waits (L5)."""

    counts: Mapping[Status, int]
    oldest_pending: datetime | None

    @property
    def pending(self) -> int:
        return self.counts[Status.PENDING]

    def lag(self, now: datetime) -> timedelta:
        if self.oldest_pending is None:
            return timedelta(0)
        return max(now - self.oldest_pending, timedelta(0))


class BackupProgress(Struct, frozen=True):
    copied_pages: int
    total_pages: int


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """What `ackbox doctor` says of one thing; unless all is well, `remedy` says what to do."""

    about: str
    verdict: Verdict
    detail: str
    remedy: str | None = None


def new_event_id(now: datetime, random_bits: RandomBits) -> EventId:
    """UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 bits of chance."""
    chance = random_bits(74)
    millis = int(now.timestamp() * 1000)
    bits = millis << 80 | _UUID_7 | (chance >> 62) << 64 | chance & _RAND_B
    text = f"{bits:032x}"
    return EventId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def to_text(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`: fixed width, so that text order is time order (W9).

    The moment must be in UTC, as every time inside ackbox is.
    """
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


def filter_by_status(name: str) -> EventFilter | None:
    """By a status, or by its name in messaging; None if it is neither. An `error` is an event that
    waits for another run after one that failed."""
    match name:
        case "received":
            return EventFilter(status=Status.PENDING)
        case "error":
            return EventFilter(status=Status.PENDING, retrying=True)
        case "processed":
            return EventFilter(status=Status.COMPLETED)
        case "dead_letter":
            return EventFilter(status=Status.FAILED)
        case _:
            return EventFilter(status=Status(name)) if name in list(Status) else None


def fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()


def check_name(what: str, value: str) -> str:
    """A key, type, lane or source: 1 to 255 characters, no control characters, no surrogates."""
    if not 0 < len(value) <= NAME_LIMIT:
        raise InvalidEvent(f"{what} must have 1 to {NAME_LIMIT} characters, not {len(value)}")
    if not value.isprintable() and (flaw := _flaw(value)):
        raise InvalidEvent(f"{what} must not contain {flaw}")
    return value


def check_sequence(value: int | None) -> int | None:
    if value is not None and value not in _SQL_INTEGER:
        raise InvalidEvent("source_sequence must fit in 64 bits with sign")
    return value


def check_moment(value: datetime | None) -> datetime | None:
    """A source's own time: any RFC 3339 moment with an offset, kept in UTC."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidEvent("source_emitted_at must say its offset, as in 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent("source_emitted_at must lie between the years 1 and 9999") from None


def _flaw(value: str) -> str | None:
    for character in value:
        if "\ud800" <= character <= "\udfff":
            return "a lone surrogate"
        if character < " " or "\x7f" <= character <= "\x9f":
            return f"the control character U+{ord(character):04X}"
    return None
