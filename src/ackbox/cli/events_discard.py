"""`ackbox events discard`."""

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


def discard(  # noqa: PLR0913 - each option is an argument
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
    dry_run: DryRun = False,
    rate: Rate = 100,
    yes: Yes = False,
) -> None:
    """Give events up on purpose: those named, or all that the options find.

    A pending event or a dead letter becomes completed, with outcome discarded, and never runs. An
    event that runs is left alone, and so is a completed one. --source says where to look for a key.
    """
    from ackbox.cli.event_operations import discard_found, discard_ids
    from ackbox.maintenance import restrict_to_discardable

    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane}
    if wanted:
        refuse_options_beside_names(given, dry_run=dry_run)
        act_on_named(wanted, source or "webhooks", discard_ids, Words("discarded", _SAID))
        return
    where = restrict_to_discardable(filter_of(given))
    if agreed(where, "Discard", dry_run=dry_run, yes=yes):
        act_on_found(lambda report: discard_found(where, rate, report), "discarded")


_SAID = {
    "discarded": "discarded: it never runs",
    "completed": "left alone: it is completed already",
    "running": "refused: it is being processed",
    "gone": "refused: it is no longer there",
}
