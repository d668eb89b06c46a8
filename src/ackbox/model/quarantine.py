"""Requests that failed verification and wait for an operator, and what an operator does to them."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NewType

import msgspec
from msgspec import Struct

from ackbox.model.events import EventId
from ackbox.model.requests import InboundRequest, RefusalReason

QuarantineId = NewType("QuarantineId", int)
"""The number of a kept request, in the order in which requests were kept."""

_ROW_BYTES = 256
"""The share of the row itself, so that many tiny requests fill the budget too."""


class RequestHead(Struct, frozen=True):
    """A request without its body and its time of arrival."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    request_id: str | None = None


class RefusedRequest(Struct, frozen=True):
    """A request to keep, and why it was refused.

    If `delivery_id` is set, the delivery itself is an event with this id, and `request.body` is the
    delivery with only the item that could not become an event.
    """

    source: str
    request: InboundRequest
    reason: RefusalReason
    detail: str
    delivery_id: EventId | None = None

    def head(self) -> bytes:
        """Return the head as JSON: bytes can hold whatever a sender wrote, a NUL included."""
        request = self.request
        head = RequestHead(request.method, request.url, request.headers, request.request_id)
        return msgspec.json.encode(head)

    @property
    def size(self) -> int:
        """The bytes that the request takes of the budget."""
        request = self.request
        headers = sum(len(name) + len(value) + 6 for name, value in request.headers)
        text = len(request.url) + headers + len(self.detail)
        return len(request.body) + text + _ROW_BYTES


class QuarantineRecord(Struct, frozen=True):
    """A kept request without its head and body, for lists."""

    id: QuarantineId
    source: str
    reason: RefusalReason
    detail: str
    delivery_id: EventId | None
    received_at: datetime
    kept_at: datetime
    size: int


class QuarantinedRequest(Struct, frozen=True):
    """A kept request as it arrived."""

    record: QuarantineRecord
    request: InboundRequest


class QuarantineFilter(Struct, frozen=True):
    """The kept requests to select. None accepts any value. `last` is the highest id to select, so
    that a bulk action leaves out what arrives meanwhile."""

    source: str | None = None
    reason: RefusalReason | None = None
    last: QuarantineId | None = None


class QuarantinePage(Struct, frozen=True):
    """Some kept requests, oldest first; `next` is the cursor of the next page."""

    items: Sequence[QuarantineRecord]
    next: QuarantineId | None


class QuarantineBudget(Struct, frozen=True):
    """The bytes that may be kept: of all sources together, and of each source."""

    total: int
    share: int

    @classmethod
    def in_equal_shares(cls, total: int, sources: int) -> "QuarantineBudget":
        """Give each source an equal share, so that one sender cannot take the room of another."""
        return cls(total, total // max(sources, 1))

    @property
    def largest(self) -> int:
        """The size of the largest request that can be kept."""
        return max(self.share, self.total // 2)

    def has_room(self, size: int, *, of_source: int, of_all: int) -> bool:
        """Return whether a request fits after the bytes that are kept. A source whose share is not
        full may keep one request that is larger than the whole share, if half of the total stays
        free for other sources."""
        if size > self.share:
            return of_source < self.share and of_all + size <= self.total // 2
        return of_source + size <= self.share and of_all + size <= self.total


class QuarantineUsage(Struct, frozen=True):
    """How much of a source is kept."""

    requests: int = 0
    bytes: int = 0


class RemovalKind(StrEnum):
    """Why a request leaves the quarantine on behalf of an operator."""

    RELEASED = "released"  # it was verified, and at least one of its events is new
    DUPLICATE = "duplicate"  # it was verified, and all of its events were known already
    DROPPED = "dropped"


class Removal(Struct, frozen=True):
    """A request to remove; `event_id` is the event that it became."""

    id: QuarantineId
    kind: RemovalKind
    event_id: EventId | None = None


class ReleaseKind(StrEnum):
    """The possible results of a release."""

    RELEASED = "released"  # at least one event is new
    DUPLICATE = "duplicate"  # all events were known already
    REFUSED = "refused"  # it failed verification again; it stays
    NO_SOURCE = "no_source"  # its source is not declared any more; it stays


class ReleaseProgress(Struct, frozen=True):
    """How many requests a release has processed so far, by result. A dry run counts requests that
    would be verified as released."""

    seen: int = 0
    released: int = 0
    duplicate: int = 0
    refused: int = 0
    no_source: int = 0


class ReleaseResult(Struct, frozen=True):
    """The result of a release for one request. `detail` says why a request stays."""

    id: QuarantineId
    kind: ReleaseKind
    detail: str | None = None
    event_id: EventId | None = None
