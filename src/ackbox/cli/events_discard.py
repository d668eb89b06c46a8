"""`ackbox events discard`."""

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


def discard(  # noqa: PLR0913 - each option is an argument
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
    dry_run: DryRun = False,
    rate: Rate = 100,
    yes: Yes = False,
) -> None:
    """Give up events on purpose: those given, or all that the options select.

    A pending event or a dead letter becomes completed with the outcome discarded, and never runs. A
    running event or a completed one is not changed. With keys, --source names their source.
    """
    from ackbox.cli.event_operations import discard_ids, discard_matching
    from ackbox.maintenance import restrict_to_discardable

    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane, "parent": parent}
    if ids_or_keys:
        refuse_options_beside_ids(given, dry_run=dry_run)
        act_on_named(ids_or_keys, source or "webhooks", discard_ids, Words("discarded", _RESULTS))
        return
    where = restrict_to_discardable(require_filter(given))
    if confirm_change(where, "Discard", dry_run=dry_run, yes=yes):
        act_on_matching(lambda report: discard_matching(where, rate, report), "discarded")


_RESULTS = {
    "discarded": "discarded: it never runs",
    "completed": "not changed: it is completed already",
    "running": "refused: it is being processed",
    "gone": "refused: it does not exist any more",
}
