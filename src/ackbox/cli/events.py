"""`ackbox events`: list and show here, the other commands in modules of their own."""

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ackbox.cli import events_discard, events_explain, events_export, events_import, events_replay
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
from ackbox.cli.event_state import show_error, show_status
from ackbox.cli.output import print_json, print_table
from ackbox.text import escape

if TYPE_CHECKING:
    from ackbox.model import EventFilter, EventRecord, Page, SourcePage
    from ackbox.ports import Reader

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SHORT_ID = 18  # its millisecond and 12 bits of chance; `show` takes it too

Ordering = Annotated[
    Literal["newest", "oldest", "source"],
    typer.Option(
        "--order", help="By arrival; or, with --source, by its own sequence and time: source."
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="Go on from where the last list ended.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.callback()
def _about() -> None:
    """Look at the events in the ledger, replay or discard them; a server may run or not."""


@app.command("list")
def list_events(  # noqa: PLR0913 - each option is an argument
    *,
    status: Status = None,
    outcome: Outcome = None,
    source: Source = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    lane: Lane = None,
    order: Ordering = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List events. Status `error` means: waits for another run after one that failed."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import as_builtins, reading

    now = utc_now()
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane}
    where = make_filter(given, now)
    page = reading(lambda reader: _collect(reader, where, order, limit, cursor))
    if as_json:
        following = page.next if isinstance(page.next, int | None) else str(page.next)
        print_json({"items": [as_builtins(event) for event in page.items], "next": following})
    else:
        with_errors = where.retrying or where.status == "failed"
        _print_page(page.items, page.next, now, with_errors=with_errors)


@app.command("show")
def show_event(
    wanted: Annotated[
        str,
        typer.Argument(metavar="ID_OR_KEY", help="An id, its beginning, or an idempotency key."),
    ],
    source: Annotated[str, typer.Option("--source", help="Where to look for a key.")] = "webhooks",
    payload: Annotated[
        bool, typer.Option("--payload", help="Print the payload alone, byte for byte.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one event, or its payload."""
    from ackbox.cli.event_lookup import as_builtins, find_detail, find_payload, reading

    if payload and as_json:
        raise typer.BadParameter("--payload and --json exclude each other.")
    if payload:
        _print_payload(reading(lambda reader: find_payload(reader, wanted, source)))
        return
    detail = reading(lambda reader: find_detail(reader, wanted, source))
    event = as_builtins(detail.event)
    if as_json:
        print_json({**event, "errors": [as_builtins(run) for run in detail.errors]})
    else:
        rows = [(name, "-" if value is None else str(value)) for name, value in event.items()]
        print_table(("field", "value"), rows)
        events_explain.print_last_traceback(detail)


app.command("explain")(events_explain.explain)
app.command("replay")(events_replay.replay)
app.command("discard")(events_discard.discard)
app.command("export")(events_export.export)
app.command("import")(events_import.import_events)


async def _collect(
    reader: "Reader", where: "EventFilter", order: str, limit: int, cursor: str | None
) -> "Page | SourcePage":
    from ackbox.cli.event_lookup import collect, collect_of_source
    from ackbox.model import Order, parse_source_cursor

    if order == "source":
        if where.source is None:
            raise typer.BadParameter("It needs --source.", param_hint="--order source")
        place = parse_source_cursor(cursor) if cursor else None
        if cursor and place is None:
            raise _bad_cursor()
        return await collect_of_source(reader, where, limit=limit, cursor=place)
    if cursor and not re.fullmatch("[0-9]{1,18}", cursor):
        raise _bad_cursor()
    start = int(cursor) if cursor else None
    return await collect(reader, where, order=Order(order), limit=limit, cursor=start)


def _bad_cursor() -> typer.BadParameter:
    return typer.BadParameter("It must be where a list ended.", param_hint="--cursor")


def _print_page(
    items: "Sequence[EventRecord]", following: object, now: datetime, *, with_errors: bool
) -> None:
    if not items:
        typer.echo("no events", err=True)
        return
    headings = ["id", "type", "source", "status", "attempts", "age", "key"]
    rows = [_row(event, now) for event in items]
    if with_errors:
        headings.append("error")
        rows = [(*row, show_error(event)) for row, event in zip(rows, items, strict=True)]
    print_table(headings, rows, cut={"type", "key", "error"})
    if following is not None:
        typer.echo(f"there is more: --cursor {following}", err=True)


def _row(event: "EventRecord", now: datetime) -> tuple[str, ...]:
    from ackbox.cli.moments import show_age

    return (
        event.id[:_SHORT_ID] if sys.stdout.isatty() else event.id,
        event.event_type,
        event.source,
        show_status(event),
        str(event.attempts),
        show_age(now - event.created_at),
        event.idempotency_key,
    )


def _print_payload(content: bytes) -> None:
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content)
        return
    text = content.decode("utf-8", "backslashreplace")
    typer.echo("".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text))
