"""Questions to the ledger, and their answers a page at a time."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ackbox.errors import InvalidEvent
from ackbox.model.checks import SQL_INTEGER, check_name
from ackbox.model.events import EventRecord, Status

LAST_SEQUENCE = (1 << 63) - 1

LAST_MOMENT = "~"
"""Where an event without number or time of its source's stands: behind those that have one."""

SOURCE_CURSOR_PATTERN = r"(-?[0-9]{1,19}),([0-9:.TZ-]{0,40}|~),([0-9]{1,18})"
_PLACE = re.compile(SOURCE_CURSOR_PATTERN)
_POSITION = re.compile(r"[0-9]{1,18}")


class Order(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


class EventFilter(Struct, frozen=True):
    """Which events to list. `None` means: any. `retrying`: only those that have run and failed.
    `event_type` is a type, or a prefix followed by `*`, as handlers name them."""

    status: Status | None = None
    retrying: bool = False
    source: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    error_code: str | None = None
    lane: str | None = None
    skip_completed: bool = False


class Page(Struct, frozen=True):
    """Some events and the place to go on from; `next` is None when there are no more.

    A page may hold fewer events than asked for and still have a `next`: a reader looks at a bounded
    number of rows a page, so that a rare filter never becomes a long read (L13).
    """

    items: Sequence[EventRecord]
    next: int | None


class SourceCursor(Struct, frozen=True, order=True):
    """A place in the order of a source (L7): its number, then its time, then arrival."""

    sequence: int
    emitted_at: str
    ledger_id: int

    def __str__(self) -> str:
        return f"{self.sequence},{self.emitted_at},{self.ledger_id}"


class SourcePage(Struct, frozen=True):
    """Some events in the order of their source; as a `Page`, it may be short and have a `next`."""

    items: Sequence[EventRecord]
    next: SourceCursor | None


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


def check_type_pattern(what: str, pattern: str) -> str:
    """Accept a type, or a prefix followed by `*`, as handlers name them; raise `InvalidEvent`."""
    check_name(what, pattern)
    if "*" in pattern[:-1]:
        raise InvalidEvent(f"{what} may have one `*`, at its end, as in order.*")
    return pattern


def parse_source_cursor(text: str) -> SourceCursor | None:
    """What `str` made of a place; a number alone is one among those that have neither sequence nor
    time. None if it is no such text."""
    if _POSITION.fullmatch(text):
        return SourceCursor(LAST_SEQUENCE, LAST_MOMENT, int(text))
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    sequence = min(max(int(found[1]), SQL_INTEGER.start), LAST_SEQUENCE)
    return SourceCursor(sequence, found[2], int(found[3]))
