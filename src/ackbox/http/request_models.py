"""The request models of the operator routes. An unknown or invalid parameter gets 400."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec.structs import replace
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from ackbox.http.openapi import NO_CONTROL_CHARACTERS, TYPE_PATTERN
from ackbox.http.problems import HttpError
from ackbox.maintenance import restrict_to_discardable, restrict_to_replayable
from ackbox.model import (
    NAME_LIMIT,
    SOURCE_CURSOR_PATTERN,
    EventFilter,
    EventId,
    OutcomeName,
    SourceCursor,
    check_name,
    check_type_pattern,
    filter_by_status,
    parse_source_cursor,
)

Status = Literal[
    "pending",
    "processing",
    "completed",
    "failed",
    "received",
    "processed",
    "error",
    "dead_letter",
]

_NO_TERM = (
    "Give at least one of status, outcome, source, type, since, until, error, lane and parent, so "
    "that an omission never selects every event."
)
_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def _parse_moment(text: object) -> datetime:
    """Parse a time. A time without an offset is UTC; a time that leaves the range of `datetime` in
    UTC becomes the end of that range."""
    try:
        moment = datetime.fromisoformat(str(text).upper())
    except ValueError:
        raise ValueError("write a time as 2026-01-31T12:00:00Z") from None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        return _FIRST_MOMENT if moment.year == 1 else _LAST_MOMENT


Moment = Annotated[
    datetime,
    BeforeValidator(_parse_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_LIMIT,
        json_schema_extra={"pattern": NO_CONTROL_CHARACTERS},  # `check_name` enforces it
    ),
]
TypePattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_LIMIT,
        description="A type, or a prefix followed by `*`, as handlers name types: `order.*`.",
        json_schema_extra={"pattern": TYPE_PATTERN},  # `check_type_pattern` enforces it
    ),
]
NumberText = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
SourceCursorText = Annotated[str, Field(pattern=rf"^([0-9]{{1,18}}|{SOURCE_CURSOR_PATTERN})$")]
Limit = Annotated[int, Field(ge=1, le=200)]
Completed = Annotated[
    bool,
    Field(
        strict=True,
        description="Replay completed events too. The whole run is repeated, with its writes "
        "through `tx`.",
    ),
]


class Filter(BaseModel, extra="forbid"):
    """The events to select. A term that is not given matches every event."""

    status: Status | None = None
    outcome: OutcomeName | None = None
    source: Name | None = None
    type: TypePattern | None = None
    since: Moment | None = None
    until: Moment | None = None
    error: Annotated[Name | None, Field(description="The error code of the last failed run.")] = (
        None
    )
    lane: Name | None = None
    parent: Annotated[
        UUID | None,
        Field(description="The events that were made from the event or delivery with this id."),
    ] = None

    def to_filter(self) -> EventFilter:
        by_status = filter_by_status(self.status) if self.status is not None else None
        names = {"source": self.source, "lane": self.lane}
        checked = {field: name and check_name(field, name) for field, name in names.items()}
        return replace(
            by_status or EventFilter(),
            **checked,
            outcome=self.outcome,
            event_type=self.type and check_type_pattern("type", self.type),
            error_code=self.error and check_name("error", self.error),
            since=self.since,
            until=self.until,
            parent_id=self.parent and EventId(str(self.parent)),
        )


class ListQuery(Filter, extra="forbid"):
    order: Annotated[
        Literal["newest", "oldest", "source"],
        Field(
            description="`newest` and `oldest`: by arrival. `source`: by the sender's own sequence "
            "and time, within one source; the default source is `webhooks`."
        ),
    ] = "newest"
    limit: Limit = 50
    cursor: Annotated[
        SourceCursorText | None, Field(description="The `next` of the previous page.")
    ] = None

    def to_filter(self) -> EventFilter:
        where = super().to_filter()
        if self.order == "source" and where.source is None:
            return replace(where, source="webhooks")
        return where

    def ledger_cursor(self) -> int | None:
        """Return the cursor of a list by arrival."""
        cursor = self.source_cursor()
        return None if cursor is None else cursor.ledger_id

    def source_cursor(self) -> SourceCursor | None:
        """Return the cursor of a list in the order of a source."""
        return None if self.cursor is None else parse_source_cursor(self.cursor)


class AuditQuery(BaseModel, extra="forbid"):
    event_id: UUID | None = None
    limit: Limit = 50
    cursor: NumberText | None = None

    def audit_cursor(self) -> int | None:
        return None if self.cursor is None else int(self.cursor)


def _needs_a_term(schema: dict[str, Any]) -> None:
    """Require in JSON Schema that at least one term is given and is not null."""
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in Filter.model_fields
    ]


class FilterRequest(Filter, extra="forbid", json_schema_extra=_needs_a_term):
    """Require at least one term, so that an omission never selects every event."""

    dry_run: Annotated[bool, Field(strict=True, description="Change nothing; only count.")] = False
    rate: Annotated[
        float, Field(ge=0.1, le=10_000, strict=True, description="The maximum events per second.")
    ] = 100

    def to_filter(self) -> EventFilter:
        where = super().to_filter()
        if where == EventFilter():
            raise HttpError(400, _NO_TERM)
        return where


class ReplayRequest(FilterRequest, extra="forbid", json_schema_extra=_needs_a_term):
    """The events to replay. Completed events are excluded, unless `status` is `completed` or
    `completed` is true."""

    completed: Completed = False

    def to_filter(self) -> EventFilter:
        return restrict_to_replayable(super().to_filter(), completed=self.completed)


class DiscardRequest(FilterRequest, extra="forbid", json_schema_extra=_needs_a_term):
    """The events to discard. Completed events are excluded: a discard does not change them."""

    def to_filter(self) -> EventFilter:
        return restrict_to_discardable(super().to_filter())


class ReplayOneRequest(BaseModel, extra="forbid"):
    """The options of a replay of one event."""

    completed: Completed = False
