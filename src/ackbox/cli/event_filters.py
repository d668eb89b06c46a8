"""The options that select events."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ackbox.model import EventFilter, EventId

STATUSES = "pending, processing, completed, failed; or received, processed, error, dead_letter"

Status = Annotated[
    str | None, typer.Option("--status", help=f"Only events in this state: {STATUSES}.")
]
OUTCOMES = "retry, snoozed, parked, replayed, handled, ignored, split, discarded, dead"
Outcome = Annotated[
    str | None, typer.Option("--outcome", help=f"Only events with this outcome: {OUTCOMES}.")
]
Source = Annotated[str | None, typer.Option("--source", help="Only events of this source.")]
Type = Annotated[
    str | None, typer.Option("--type", help="Only events of this type, or of a prefix: order.*")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only events received since a time (UTC) or a duration ago: 2h.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", help="Only events received before this time; written like --since."),
]
Error = Annotated[
    str | None,
    typer.Option("--error", help="Only events whose last error has this code."),
]
Lane = Annotated[str | None, typer.Option("--lane", help="Only events of this lane.")]
Parent = Annotated[
    str | None,
    typer.Option("--parent", help="Only events made from the event or delivery with this id."),
]


def make_filter(given: Mapping[str, str | None], now: datetime) -> "EventFilter":
    """Build a filter from the values of the options above, by option name."""
    from msgspec.structs import replace

    from ackbox.model import (
        EventFilter,
        OutcomeName,
        check_name,
        check_type_pattern,
        filter_by_status,
    )

    status = given["status"]
    where = EventFilter() if status is None else filter_by_status(status)
    if where is None:
        raise typer.BadParameter(f"The status must be one of {STATUSES}.", param_hint="--status")
    if given["outcome"] not in (None, *OutcomeName):
        raise typer.BadParameter(f"The outcome must be one of {OUTCOMES}.", param_hint="--outcome")
    names = {
        field: given[option] and check_name(option, given[option] or "")
        for field, option in _FIELDS.items()
    }
    if given["type"] is not None:
        check_type_pattern("type", given["type"])
    since, until = (_parse_time(option, given[option], now) for option in ("since", "until"))
    return replace(
        where, **names, since=since, until=until, parent_id=_parse_id("parent", given["parent"])
    )


_FIELDS = {
    "source": "source",
    "event_type": "type",
    "outcome": "outcome",
    "error_code": "error",
    "lane": "lane",
}


def _parse_id(option: str, text: str | None) -> "EventId | None":
    from uuid import UUID

    from ackbox.model import EventId

    try:
        return None if text is None else EventId(str(UUID(text)))
    except ValueError:
        hint = "Give the whole id of an event, as `ackbox events show` prints it."
        raise typer.BadParameter(hint, param_hint=f"--{option}") from None


def _parse_time(option: str, text: str | None, now: datetime) -> datetime | None:
    from ackbox.cli.moments import parse_moment

    try:
        return None if text is None else parse_moment(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"--{option}") from None
