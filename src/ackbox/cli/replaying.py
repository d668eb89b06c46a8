"""`ackbox events replay`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    make_filter,
)
from ackbox.cli.output import print_table, warn
from ackbox.errors import CommandFailed
from ackbox.text import printable

if TYPE_CHECKING:
    from ackbox.model import EventFilter
    from ackbox.upkeep import Preview

Report = Callable[[int, int], None]

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID_OR_KEY", help="Ids, beginnings of ids, or idempotency keys."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be replayed.")]
Rate = Annotated[
    float, typer.Option("--rate", min=0.1, max=10_000, help="Events a second at most.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before a replay by filter.")]


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
    dry_run: DryRun = False,
    rate: Rate = 100,
    yes: Yes = False,
) -> None:
    """Give events a new run: those named, or all that the options find.

    A finished event starts anew, with all its attempts; one that waits for a retry, or is held,
    becomes due; one that runs is left alone. --source says where to look for a key.
    """
    from ackbox.app import utc_now
    from ackbox.model import EventFilter

    now = utc_now()
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane}
    if wanted:
        if dry_run or any(value for name, value in given.items() if name != "source"):
            raise typer.BadParameter("Name events, or options to find them by; not both.")
        _replay_named(wanted, source or "webhooks")
        return
    where = make_filter(given, now)
    if where == EventFilter():
        raise typer.BadParameter("Name events, or options to find them by, as --status failed.")
    if _agreed(where, dry_run=dry_run, yes=yes):
        _replay_found(where, rate)


def _replay_named(wanted: list[str], source: str) -> None:
    from ackbox.cli.operating import replay_ids
    from ackbox.cli.reading import find_ids, reading

    ids = reading(lambda reader: find_ids(reader, wanted, source))
    done = replay_ids(ids)
    for event_id in ids:
        typer.echo(f"{event_id}  {_SAID[done.get(event_id, 'gone')]}")
    if any(done.get(event_id, "gone") in _NOT_DONE for event_id in ids):
        raise CommandFailed("Not all of them could be replayed.")


_SAID = {
    "replayed": "replayed: it starts anew",
    "hurried": "due now, instead of waiting for its retry",
    "put_back": "put back: it was held",
    "waiting": "left alone: it is pending already",
    "running": "refused: it is being processed",
    "gone": "refused: it is no longer there",
}
_NOT_DONE = frozenset({"running", "gone"})


def _agreed(where: "EventFilter", *, dry_run: bool, yes: bool) -> bool:
    """What would be touched is shown before anything moves."""
    from ackbox.app import utc_now
    from ackbox.cli.reading import reading
    from ackbox.upkeep import preview

    found = reading(lambda reader: preview(reader, where, utc_now()))
    _show(found)
    if dry_run or not found.events:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed("Nothing was replayed: add --yes where nobody can be asked.")
    return typer.confirm(f"Replay {found.events} events?", err=True)


def _show(found: "Preview") -> None:
    if not found.events:
        warn("no events")
        return
    rows = [
        (str(group.events), group.event_type, group.error_code or "-") for group in found.groups
    ]
    print_table(("events", "type", "error"), rows)


def _replay_found(where: "EventFilter", rate: float) -> None:
    from ackbox.cli.operating import replay_found

    with _progress() as report:
        seen, moved = replay_found(where, rate, report)
    typer.echo(printable(f"{moved} of {seen} events replayed"))


@contextmanager
def _progress() -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield lambda seen, moved: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} replayed"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=None)
        yield lambda seen, moved: bar.update(task, completed=moved)
