"""The parts that `events replay` and `events discard` share: options, selection of events, a prompt
before the change, and its report."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ackbox.cli.event_filters import make_filter
from ackbox.cli.event_state import describe
from ackbox.cli.output import print_table, warn
from ackbox.errors import CommandFailed
from ackbox.text import printable

if TYPE_CHECKING:
    from ackbox.maintenance import Preview
    from ackbox.model import EventFilter, EventId

Report = Callable[[int, int], None]

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID_OR_KEY", help="Ids, beginnings of ids, or keys of events."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; count the events.")]
Rate = Annotated[
    float,
    typer.Option("--rate", min=0.1, max=10_000, help="The largest number of events a second."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


class Words(NamedTuple):
    """The word for the whole change, and a phrase for each result of a single event."""

    done: str
    results: Mapping[str, str]


def refuse_options_beside_ids(given: Mapping[str, str | None], *, dry_run: bool) -> None:
    if dry_run or any(value for name, value in given.items() if name != "source"):
        raise typer.BadParameter("Give events, or options that select them, but not both.")


def require_filter(given: Mapping[str, str | None]) -> "EventFilter":
    from ackbox.app import utc_now
    from ackbox.model import EventFilter

    where = make_filter(given, utc_now())
    if where == EventFilter():
        raise typer.BadParameter("Give events, or options that select them: --status failed.")
    return where


def act_on_named(
    ids_or_keys: list[str],
    source: str,
    act: "Callable[[list[EventId]], Mapping[str, str]]",
    words: Words,
) -> None:
    """Print what each event was, and what was done to it."""
    from ackbox.cli.event_lookup import find_each, read_ledger

    events = read_ledger(lambda reader: find_each(reader, ids_or_keys, source))
    done = act([event.id for event in events])
    for event in events:
        result = words.results[done.get(event.id, "gone")]
        typer.echo(printable(f"{event.id}  was {describe(event)}  {result}"))
    if any(words.results[done.get(event.id, "gone")].startswith("refused") for event in events):
        raise CommandFailed(f"Not all events could be {words.done}.")


def confirm_change(where: "EventFilter", verb: str, *, dry_run: bool, yes: bool) -> bool:
    """Show which events the change would affect, and ask. Return whether to go on."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import read_ledger
    from ackbox.maintenance import preview

    affected = read_ledger(lambda reader: preview(reader, where, utc_now()))
    _show_preview(affected)
    if dry_run or not affected.events:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed("Nothing was changed. Without a terminal, confirm with --yes.")
    return typer.confirm(f"{verb} {affected.events} events?", err=True)


def act_on_matching(act: Callable[[Report], tuple[int, int]], done: str) -> None:
    with _progress(done) as report:
        seen, changed = act(report)
    typer.echo(printable(f"{changed} of {seen} events {done}"))


def _show_preview(affected: "Preview") -> None:
    if not affected.events:
        warn("no events")
        return
    rows = [
        (str(group.events), group.event_type, group.error_code or "-") for group in affected.groups
    ]
    print_table(("events", "type", "error"), rows)


@contextmanager
def _progress(done: str) -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield lambda seen, changed: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} " + done), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(done, total=None)
        yield lambda seen, changed: bar.update(task, completed=changed)
