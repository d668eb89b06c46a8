"""The options that say which events."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ackbox.model import EventFilter

STATUSES = "pending, processing, completed, failed; or received, processed, error, dead_letter"

Status = Annotated[str | None, typer.Option("--status", help=f"Only in this state: {STATUSES}.")]
OUTCOMES = "retry, snoozed, parked, replayed, handled, ignored, discarded, dead"
Outcome = Annotated[
    str | None, typer.Option("--outcome", help=f"Only with this outcome: {OUTCOMES}.")
]
Source = Annotated[str | None, typer.Option("--source", help="Only of this source.")]
Type = Annotated[
    str | None, typer.Option("--type", help="Only of this type, or as order.*: of this prefix.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Received at or after: a time (UTC), or how long ago, as 2h."),
]
Until = Annotated[str | None, typer.Option("--until", help="Received before; as --since.")]
Error = Annotated[
    str | None, typer.Option("--error", help="Only whose last failed run had this error code.")
]
Lane = Annotated[str | None, typer.Option("--lane", help="Only of this lane.")]


def make_filter(given: Mapping[str, str | None], now: datetime) -> "EventFilter":
    """From what the options above were given, by the name of each."""
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
        raise typer.BadParameter(f"It must be {STATUSES}.", param_hint="--status")
    if given["outcome"] not in (None, *OutcomeName):
        raise typer.BadParameter(f"It must be one of {OUTCOMES}.", param_hint="--outcome")
    names = {
        field: given[option] and check_name(option, given[option] or "")
        for field, option in _FIELDS.items()
    }
    if given["type"] is not None:
        check_type_pattern("type", given["type"])
    since, until = (_moment(option, given[option], now) for option in ("since", "until"))
    return replace(where, **names, since=since, until=until)


_FIELDS = {
    "source": "source",
    "event_type": "type",
    "outcome": "outcome",
    "error_code": "error",
    "lane": "lane",
}


def _moment(option: str, text: str | None, now: datetime) -> datetime | None:
    from ackbox.cli.moments import parse_moment

    try:
        return None if text is None else parse_moment(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"--{option}") from None
