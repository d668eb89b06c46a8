"""What replay and discard share: options, the events that are meant, the question before a change,
and what was done."""

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
    typer.Argument(metavar="ID_OR_KEY", help="Ids, beginnings of ids, or idempotency keys."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; count.")]
Rate = Annotated[
    float, typer.Option("--rate", min=0.1, max=10_000, help="Events a second at most.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before a change by filter.")]


class Words(NamedTuple):
    """What was done to all of them, and a sentence for what was done to one."""

    done: str
    said: Mapping[str, str]


def refuse_options_beside_names(given: Mapping[str, str | None], *, dry_run: bool) -> None:
    if dry_run or any(value for name, value in given.items() if name != "source"):
        raise typer.BadParameter("Name events, or options to find them by; not both.")


def filter_of(given: Mapping[str, str | None]) -> "EventFilter":
    from ackbox.app import utc_now
    from ackbox.model import EventFilter

    where = make_filter(given, utc_now())
    if where == EventFilter():
        raise typer.BadParameter("Name events, or options to find them by, as --status failed.")
    return where


def act_on_named(
    wanted: list[str],
    source: str,
    act: "Callable[[list[EventId]], Mapping[str, str]]",
    words: Words,
) -> None:
    """Print what each event was, and what was done to it."""
    from ackbox.cli.event_lookup import find_each, reading

    events = reading(lambda reader: find_each(reader, wanted, source))
    done = act([event.id for event in events])
    for event in events:
        said = words.said[done.get(event.id, "gone")]
        typer.echo(printable(f"{event.id}  was {describe(event)}  {said}"))
    if any(words.said[done.get(event.id, "gone")].startswith("refused") for event in events):
        raise CommandFailed(f"Not all of them could be {words.done}.")


def agreed(where: "EventFilter", verb: str, *, dry_run: bool, yes: bool) -> bool:
    """Show what would be touched before anything moves, and ask."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import reading
    from ackbox.maintenance import preview

    found = reading(lambda reader: preview(reader, where, utc_now()))
    _show(found)
    if dry_run or not found.events:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed("Nothing was changed: add --yes where nobody can be asked.")
    return typer.confirm(f"{verb} {found.events} events?", err=True)


def act_on_found(act: Callable[[Report], tuple[int, int]], done: str) -> None:
    with _progress(done) as report:
        seen, moved = act(report)
    typer.echo(printable(f"{moved} of {seen} events {done}"))


def _show(found: "Preview") -> None:
    if not found.events:
        warn("no events")
        return
    rows = [
        (str(group.events), group.event_type, group.error_code or "-") for group in found.groups
    ]
    print_table(("events", "type", "error"), rows)


@contextmanager
def _progress(done: str) -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield lambda seen, moved: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} " + done), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(done, total=None)
        yield lambda seen, moved: bar.update(task, completed=moved)
