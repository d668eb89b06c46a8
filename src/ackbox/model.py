"""The values everything else speaks of: pure, immutable, without a clock or any I/O."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, NewType

from msgspec import Struct

from ackbox.errors import InvalidEvent

EventId = NewType("EventId", str)
"""A UUIDv7 in its canonical text form: sorts by the time the event was accepted."""

WorkerId = NewType("WorkerId", str)
"""Random per process: a restart under the same name never inherits a claim (F21)."""

SUSPECT = 2
"""So many claims in a row without a settle, and an event runs alone: it may be what kills us."""

Clock = Callable[[], datetime]
"""Wall-clock time, always aware and in UTC."""

RandomBits = Callable[[int], int]
"""`random.getrandbits`, or a test's own."""

NAME_LIMIT = 255
ERROR_LIMIT = 4096
_UUID_7 = 7 << 76 | 2 << 62
_RAND_B = (1 << 62) - 1
_SQL_INTEGER = range(-(1 << 63), 1 << 63)
PLACE_PATTERN = r"(-?[0-9]{1,19}),([0-9:.TZ-]{0,40}|~),([0-9]{1,18})"
_PLACE = re.compile(PLACE_PATTERN)
_POSITION = re.compile(r"[0-9]{1,18}")


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


class Statement(Struct, frozen=True):
    """One statement on a user's own tables, with its named parameters."""

    sql: str
    params: Mapping[str, object]


class Claim(Struct, frozen=True, gc=False):
    """The right to settle one run of an event, while its lease lasts."""

    ledger_id: int
    id: EventId
    run: int
    source: str
    idempotency_key: str
    event_type: str
    content_type: str
    headers: str | None
    attempts: int
    unsettled: int
    lane: str | None
    source_sequence: int | None
    source_emitted_at: datetime | None
    created_at: datetime
    request_id: str | None
    payload: bytes


class Failure(Struct, frozen=True):
    """Why a run failed: text of at most 4 KiB without NUL or surrogates, and a short code."""

    error: str
    code: str


class Again(Struct, frozen=True):
    """Outcome *retry*: back to pending, due after `delay`."""

    failure: Failure
    delay: timedelta


class Buried(Struct, frozen=True):
    """Outcome *dead*: a dead letter."""

    failure: Failure


class Done(Struct, frozen=True):
    """Outcome *done*. The effects commit with it; if they fail, the run failed: `otherwise`."""

    outcome: str = "handled"
    effects: Sequence[Statement] = ()
    otherwise: Again | Buried | None = None


class Release(Struct, frozen=True):
    """Outcome *release*: handed back, attempt refunded; held until a handler exists if so said,
    else due again at once, or after `delay`."""

    held: bool = False
    delay: timedelta = timedelta(0)


Outcome = Done | Again | Buried | Release


class Settlement(Struct, frozen=True):
    claim: Claim
    outcome: Outcome


class Caps(Struct, frozen=True):
    """What a worker may take: `share` is the most one source may hold while others wait, `alone`
    while none does (None: all), `held` what each holds now."""

    share: int
    held: Mapping[str, int]
    alone: int | None = None


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
    outcome: str | None = None
    error_code: str | None = None
    lane: str | None = None


class Page(Struct, frozen=True):
    """Some events and the place to go on from; `next` is None when there are no more.

    A page may hold fewer events than asked for and still have a `next`: a reader looks at a bounded
    number of rows a page, so that a rare filter never becomes a long read (L13).
    """

    items: Sequence[EventRecord]
    next: int | None


LAST_SEQUENCE = (1 << 63) - 1
LAST_MOMENT = "~"
"""Where an event without number or time of its source's stands: behind those that have one."""


class SourcePlace(Struct, frozen=True, order=True):
    """A place in the order of a source (L7): its number, then its time, then arrival."""

    sequence: int
    emitted_at: str
    ledger_id: int

    def __str__(self) -> str:
        return f"{self.sequence},{self.emitted_at},{self.ledger_id}"


class SourcePage(Struct, frozen=True):
    """Some events in the order of their source; as a `Page`, it may be short and have a `next`."""

    items: Sequence[EventRecord]
    next: SourcePlace | None


class FailedRun(Struct, frozen=True):
    at: datetime
    attempt: int
    run: int
    code: str
    error: str


class EventStory(Struct, frozen=True):
    """All that is known of one event but its payload: what `explain` tells from.

    `claimable_at` is when a worker may take it; None: it is finished, held, or `behind` another of
    its lane. `buried_at`: retention has marked it, and will delete it soon.
    """

    event: EventRecord
    unsettled: int
    claimable_at: datetime | None
    headers: Mapping[str, str]
    errors: Sequence[FailedRun]
    behind: EventRecord | None
    buried_at: datetime | None
    audit: Sequence["AuditEntry"]


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


class ReplayKind(StrEnum):
    """What a replay did to an event (F31)."""

    REPLAYED = "replayed"  # it was finished; now it is pending, with all its attempts
    HURRIED = "hurried"  # it waited for a retry; now it is due
    PUT_BACK = "put_back"  # it was held for want of a handler; now it is due
    WAITING = "waiting"  # nothing: it is pending already
    RUNNING = "running"  # nothing: a worker holds it


class AuditEntry(Struct, frozen=True):
    """Something an operator did."""

    audit_id: int
    at: datetime
    actor: str
    action: str
    event_id: EventId | None
    detail: Mapping[str, Any]


class AuditPage(Struct, frozen=True):
    """What operators did, newest first, and the place to go on from."""

    items: Sequence[AuditEntry]
    next: int | None


class RetentionPolicy(Struct, frozen=True):
    """W11: finished events are kept for `keep` since they came, and at least for `rest` since they
    were finished; their keys are known for `remember` after that. Between tombstone and removal
    lies `wait`, so that no insert meets neither."""

    keep: timedelta
    remember: timedelta
    rest: timedelta = timedelta(hours=24)
    wait: timedelta = timedelta(minutes=1)


class Walk(Struct, frozen=True):
    """How many events were buried, and where to go on; `next` is None at the end."""

    rows: int
    next: int | None


class Removed(Struct, frozen=True):
    """How many events were deleted; whether `more` may be ripe now; whether buried ones wait."""

    rows: int
    more: bool
    waiting: bool


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


def make_failure(error: str, code: str) -> Failure:
    """Cleaned and cut: it must fit into any database and any page."""
    return Failure(_clean(error, ERROR_LIMIT), _clean(code, NAME_LIMIT))


def _clean(text: str, limit: int) -> str:
    kept = text.replace("\0", "").encode("utf-8", "ignore")[:limit]
    return kept.decode("utf-8", "ignore")


def to_text(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`: fixed width, so that text order is time order (W9).

    The moment must be in UTC, as every time inside ackbox is.
    """
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


def parse_place(text: str) -> SourcePlace | None:
    """What `str` made of a place; a number alone is one among those that have neither sequence nor
    time. None if it is no such text."""
    if _POSITION.fullmatch(text):
        return SourcePlace(LAST_SEQUENCE, LAST_MOMENT, int(text))
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    sequence = min(max(int(found[1]), _SQL_INTEGER.start), LAST_SEQUENCE)
    return SourcePlace(sequence, found[2], int(found[3]))


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
