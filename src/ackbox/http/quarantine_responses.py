"""The responses of the routes of the quarantine."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from msgspec.structs import asdict
from pydantic import BaseModel

from ackbox.model import (
    QuarantinedRequest,
    QuarantinePage,
    QuarantineRecord,
    RefusalReason,
    ReleaseProgress,
    to_text,
)
from ackbox.quarantine import show_request


class QuarantineItem(BaseModel):
    """A kept request without its contents. `delivery_id` is set for an item of a delivery: the
    delivery itself is the event with this id."""

    id: int
    source: str
    reason: RefusalReason
    detail: str
    delivery_id: UUID | None
    received_at: str
    kept_at: str
    size: int


class QuarantineList(BaseModel):
    items: list[QuarantineItem]
    next: str | None

    @classmethod
    def of(cls, page: QuarantinePage) -> Self:
        items = [QuarantineItem(**_to_json(record)) for record in page.items]
        return cls(items=items, next=None if page.next is None else str(page.next))


class QuarantineDetail(QuarantineItem):
    """A kept request. Values that may be secret are hidden. `text` is the body, or its beginning,
    if it is UTF-8; else `hex` is its beginning."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body_bytes: int
    text: str | None
    hex: str | None

    @classmethod
    def of(cls, kept: QuarantinedRequest, secret_headers: AbstractSet[str] | None) -> Self:
        shown = show_request(kept.request, secret_headers)
        return cls(**_to_json(kept.record), **asdict(shown))


class ReleaseResponse(BaseModel):
    """`did` is `released`, or `duplicate` if the sender has sent all of its events again."""

    id: int
    did: str
    event_id: UUID | None


class DropResponse(BaseModel):
    id: int
    did: str = "dropped"


class ReleaseLine(BaseModel):
    """The progress of a release. The last line has `done`. With `dry_run`, the only line counts as
    `released` what would be verified."""

    seen: int
    released: int
    duplicate: int
    refused: int
    no_source: int
    done: bool = False

    @classmethod
    def of(cls, progress: ReleaseProgress, *, done: bool) -> Self:
        return cls(**asdict(progress), done=done)


class DropLine(BaseModel):
    """The progress of a drop. The last line has `done`."""

    dropped: int
    done: bool = False


def _to_json(record: QuarantineRecord) -> dict[str, Any]:
    return {
        name: to_text(field) if isinstance(field, datetime) else field
        for name, field in asdict(record).items()
    }
