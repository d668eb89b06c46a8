"""Filters on the ledger, cursors and pages."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ackbox.errors import InvalidEvent
from ackbox.model.checks import SQL_INTEGER, check_name
from ackbox.model.events import EventId, EventRecord, Status

LAST_SEQUENCE = (1 << 63) - 1

LAST_MOMENT = "~"
"""The time of an event whose source gave none: it sorts after all events with a time."""

SOURCE_CURSOR_PATTERN = r"(-?[0-9]{1,19}),([0-9:.TZ-]{0,40}|~),([0-9]{1,18})"
_SOURCE_CURSOR = re.compile(SOURCE_CURSOR_PATTERN)
_LEDGER_ID = re.compile(r"[0-9]{1,18}")


class Order(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


class EventFilter(Struct, frozen=True):
    """The events to list. None accepts any value. `retrying` selects events that have run and
    failed. `event_type` is a type, or a prefix followed by `*`, as handlers name them. `parent_id`
    selects the events that were made from this event or delivery."""

    status: Status | None = None
    retrying: bool = False
    source: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    error_code: str | None = None
    lane: str | None = None
    parent_id: EventId | None = None
    skip_completed: bool = False


class Page(Struct, frozen=True):
    """Some events, and the cursor of the next page; `next` is None if there are no more events.

    A page may have fewer events than the limit and still have a `next`. For one page a reader looks
    at a bounded number of rows, so that a rare filter never becomes a long read (L13).
    """

    items: Sequence[EventRecord]
    next: int | None


class SourceCursor(Struct, frozen=True, order=True):
    """A position in the order of a source (L7): by its number, then its time, then arrival."""

    sequence: int
    emitted_at: str
    ledger_id: int

    def __str__(self) -> str:
        return f"{self.sequence},{self.emitted_at},{self.ledger_id}"


class SourcePage(Struct, frozen=True):
    """Some events in the order of their source. Like a `Page`, it may have fewer events than the
    limit although more follow."""

    items: Sequence[EventRecord]
    next: SourceCursor | None


class Stats(Struct, frozen=True):
    """The number of events in each status, the time since which the oldest pending event waits
    (L5), and how long ago the ledger last changed, by the clock of retention; None if it is
    empty."""

    counts: Mapping[Status, int]
    oldest_pending: datetime | None
    newest_age: timedelta | None = None

    @property
    def pending(self) -> int:
        return self.counts[Status.PENDING]

    def lag(self, now: datetime) -> timedelta:
        if self.oldest_pending is None:
            return timedelta(0)
        return max(now - self.oldest_pending, timedelta(0))


def filter_by_status(name: str) -> EventFilter | None:
    """Return the filter for a status or for its name in messaging; None if the name is neither.
    `error` selects events that wait for another run after a failed one."""
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
    """Parse what `str(SourceCursor)` returned. A number alone is the `ledger_id` of an event that
    has neither sequence nor time. Return None for any other text."""
    if _LEDGER_ID.fullmatch(text):
        return SourceCursor(LAST_SEQUENCE, LAST_MOMENT, int(text))
    match = _SOURCE_CURSOR.fullmatch(text)
    if match is None:
        return None
    sequence = min(max(int(match[1]), SQL_INTEGER.start), LAST_SEQUENCE)
    return SourceCursor(sequence, match[2], int(match[3]))
