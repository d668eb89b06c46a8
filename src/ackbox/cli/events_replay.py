"""`ackbox events replay`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.cli.event_filters import (
    Error,
    Lane,
    Outcome,
    Since,
    Source,
    Status,
    Type,
    Until,
)
from ackbox.cli.event_selection import (
    DryRun,
    Ids,
    Rate,
    Words,
    Yes,
    act_on_found,
    act_on_named,
    agreed,
    filter_of,
    refuse_options_beside_names,
)

if TYPE_CHECKING:
    from ackbox.model import EventFilter

Completed = Annotated[
    bool, typer.Option("--completed", help="Run completed events again too, as a whole.")
]


def replay(  # noqa: PLR0913 - each option is an argument
    wanted: Ids = None,
    *,
    status: Status = None,
    outcome: Outcome = None,
    source: Source = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    lane: Lane = None,
    completed: Completed = False,
    dry_run: DryRun = False,
    rate: Rate = 100,
    yes: Yes = False,
) -> None:
    """Give events a new run: those named, or all that the options find.

    A dead letter starts anew, with all its attempts; an event that waits for a retry, or is held,
    becomes due; an event that runs is left alone. A completed event is left alone too, unless
    --completed or --status completed asks for it. --source says where to look for a key.
    """
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane}
    if wanted:
        refuse_options_beside_names(given, dry_run=dry_run)
        _replay_named(wanted, source or "webhooks", completed=completed)
        return
    where = _filter_of(given, completed=completed)
    if agreed(where, "Replay", dry_run=dry_run, yes=yes):
        _replay_found(where, rate)


def _replay_named(wanted: list[str], source: str, *, completed: bool) -> None:
    from ackbox.cli.event_operations import replay_ids

    words = Words("replayed", _SAID)
    act_on_named(wanted, source, lambda ids: replay_ids(ids, completed=completed), words)


def _filter_of(given: Mapping[str, str | None], *, completed: bool) -> "EventFilter":
    from ackbox.maintenance import restrict_to_replayable

    where = restrict_to_replayable(filter_of(given), completed=completed)
    if where.skip_completed and where.outcome in _OF_COMPLETED:
        hint = f"Events that are {where.outcome} are completed: add --completed to run them again."
        raise typer.BadParameter(hint, param_hint="--outcome")
    return where


def _replay_found(where: "EventFilter", rate: float) -> None:
    from ackbox.cli.event_operations import replay_found

    act_on_found(lambda report: replay_found(where, rate, report), "replayed")


_OF_COMPLETED = ("handled", "ignored", "discarded")
_SAID = {
    "replayed": "replayed: it starts anew",
    "expedited": "due now, instead of waiting for its retry",
    "unparked": "unparked: it is due now",
    "waiting": "left alone: it is pending already",
    "completed": "refused: it is completed; --completed runs it again",
    "running": "refused: it is being processed",
    "gone": "refused: it is no longer there",
}
