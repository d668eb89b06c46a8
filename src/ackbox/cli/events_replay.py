"""`ackbox events replay`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.cli.event_filters import (
    Error,
    Lane,
    Outcome,
    Parent,
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
    act_on_matching,
    act_on_named,
    confirm_change,
    refuse_options_beside_ids,
    require_filter,
)

if TYPE_CHECKING:
    from ackbox.model import EventFilter

Completed = Annotated[
    bool, typer.Option("--completed", help="Also run completed events again, from the beginning.")
]


def replay(  # noqa: PLR0913 - each option is an argument
    ids_or_keys: Ids = None,
    *,
    status: Status = None,
    outcome: Outcome = None,
    source: Source = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    lane: Lane = None,
    parent: Parent = None,
    completed: Completed = False,
    dry_run: DryRun = False,
    rate: Rate = 100,
    yes: Yes = False,
) -> None:
    """Run events again: those given, or all that the options select.

    A dead letter starts over with all its attempts. An event that is parked or waits for a retry
    becomes due now. A running event is not changed, and neither is a completed one, unless
    --completed or --status completed is given. With keys, --source names their source.
    """
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane, "parent": parent}
    if ids_or_keys:
        refuse_options_beside_ids(given, dry_run=dry_run)
        _replay_named(ids_or_keys, source or "webhooks", completed=completed)
        return
    where = _build_filter(given, completed=completed)
    if confirm_change(where, "Replay", dry_run=dry_run, yes=yes):
        _replay_matching(where, rate)


def _replay_named(ids_or_keys: list[str], source: str, *, completed: bool) -> None:
    from ackbox.cli.event_operations import replay_ids

    words = Words("replayed", _RESULTS)
    act_on_named(ids_or_keys, source, lambda ids: replay_ids(ids, completed=completed), words)


def _build_filter(given: Mapping[str, str | None], *, completed: bool) -> "EventFilter":
    from ackbox.maintenance import restrict_to_replayable

    where = restrict_to_replayable(require_filter(given), completed=completed)
    if where.outcome == "split":
        hint = "Deliveries do not run. Replay the events that were made from their items."
        raise typer.BadParameter(hint, param_hint="--outcome")
    if where.skip_completed and where.outcome in _COMPLETED_OUTCOMES:
        hint = f"Events that are {where.outcome} are completed. Add --completed to run them again."
        raise typer.BadParameter(hint, param_hint="--outcome")
    return where


def _replay_matching(where: "EventFilter", rate: float) -> None:
    from ackbox.cli.event_operations import replay_matching

    act_on_matching(lambda report: replay_matching(where, rate, report), "replayed")


_COMPLETED_OUTCOMES = ("handled", "ignored", "discarded")
_RESULTS = {
    "replayed": "replayed: it starts over",
    "expedited": "due now, instead of waiting for its retry",
    "unparked": "unparked: it is due now",
    "waiting": "not changed: it is due already",
    "completed": "refused: it is completed; --completed runs it again",
    "split": "refused: it is a delivery; replay the events that were made from its items",
    "running": "refused: it is being processed",
    "gone": "refused: it does not exist any more",
}
