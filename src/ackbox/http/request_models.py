"""What the operator's routes may be asked; what is not understood is 400."""

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

_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def _moment(given: object) -> datetime:
    """UTC unless it says otherwise; a moment beyond the calendar is the end of it."""
    try:
        moment = datetime.fromisoformat(str(given).upper())
    except ValueError:
        raise ValueError("write a time as 2026-01-31T12:00:00Z") from None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        return _FIRST_MOMENT if moment.year == 1 else _LAST_MOMENT


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_LIMIT,
        json_schema_extra={"pattern": NO_CONTROL_CHARACTERS},  # told here, checked by `check_name`
    ),
]
TypePattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_LIMIT,
        description="A type, or a prefix followed by `*`, as handlers name types: `order.*`.",
        json_schema_extra={"pattern": TYPE_PATTERN},  # told here, checked by `check_type_pattern`
    ),
]
Position = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
SourceCursorText = Annotated[str, Field(pattern=rf"^([0-9]{{1,18}}|{SOURCE_CURSOR_PATTERN})$")]
Limit = Annotated[int, Field(ge=1, le=200)]
Completed = Annotated[
    bool, Field(strict=True, description="Run completed events again too, as a whole.")
]


class Filter(BaseModel, extra="forbid"):
    """Which events; what is not given is any."""

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

    def where(self) -> EventFilter:
        found = filter_by_status(self.status) if self.status is not None else None
        names = {"source": self.source, "lane": self.lane}
        checked = {what: name and check_name(what, name) for what, name in names.items()}
        return replace(
            found or EventFilter(),
            **checked,
            outcome=self.outcome,
            event_type=self.type and check_type_pattern("type", self.type),
            error_code=self.error and check_name("error", self.error),
            since=self.since,
            until=self.until,
        )


class ListQuery(Filter, extra="forbid"):
    order: Annotated[
        Literal["newest", "oldest", "source"],
        Field(
            description="By arrival; or, `source`, by the own sequence and time of one source: "
            "`webhooks`, unless another is named."
        ),
    ] = "newest"
    limit: Limit = 50
    cursor: Annotated[
        SourceCursorText | None, Field(description="The `next` of the page before.")
    ] = None

    def where(self) -> EventFilter:
        found = super().where()
        if self.order == "source" and found.source is None:
            return replace(found, source="webhooks")
        return found

    def position(self) -> int | None:
        """By arrival."""
        place = self.place()
        return None if place is None else place.ledger_id

    def place(self) -> SourceCursor | None:
        """In the order of a source."""
        return None if self.cursor is None else parse_source_cursor(self.cursor)


class AuditQuery(BaseModel, extra="forbid"):
    event_id: UUID | None = None
    limit: Limit = 50
    cursor: Position | None = None

    def position(self) -> int | None:
        return None if self.cursor is None else int(self.cursor)


def _needs_a_term(schema: dict[str, Any]) -> None:
    """As JSON Schema says it: one of them is there, and is not null."""
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in Filter.model_fields
    ]


class FilterRequest(Filter, extra="forbid", json_schema_extra=_needs_a_term):
    """At least one term of the filter: nobody acts on all there is by leaving something out."""

    dry_run: Annotated[bool, Field(strict=True, description="Change nothing; count.")] = False
    rate: Annotated[
        float, Field(ge=0.1, le=10_000, strict=True, description="Events a second at most.")
    ] = 100

    def where(self) -> EventFilter:
        found = super().where()
        if found == EventFilter():
            raise HttpError(400, "Name at least one of status, outcome, source, type, since, ...")
        return found


class ReplayRequest(FilterRequest, extra="forbid", json_schema_extra=_needs_a_term):
    """Completed events are left out, unless `status` or `completed` asks for them."""

    completed: Completed = False

    def where(self) -> EventFilter:
        return restrict_to_replayable(super().where(), completed=self.completed)


class DiscardRequest(FilterRequest, extra="forbid", json_schema_extra=_needs_a_term):
    """Completed events are left out: a discard changes nothing about them."""

    def where(self) -> EventFilter:
        return restrict_to_discardable(super().where())


class ReplayOneRequest(BaseModel, extra="forbid"):
    """What may be said about the replay of one event."""

    completed: Completed = False
