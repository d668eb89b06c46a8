"""`ackbox events` with its commands `list` and `show`. The other commands have modules of their
own."""

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
    Parent,
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
    from ackbox.model import EventDetail, EventFilter, EventRecord, Page, SourcePage
    from ackbox.ports import Reader

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SHORT_ID = 18  # the millisecond and 12 random bits; every command accepts it

Ordering = Annotated[
    Literal["newest", "oldest", "source"],
    typer.Option(
        "--order",
        help="newest or oldest: by arrival. source: the source's own order; needs --source.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=10_000, help="The largest number of events.")
]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Continue where the last list ended.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _about() -> None:
    """List, show, explain, replay, discard, export or import events."""


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
    parent: Parent = None,
    order: Ordering = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List events. The status `error` means that the event waits for a retry."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import read_ledger

    now = utc_now()
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane, "parent": parent}
    where = make_filter(given, now)
    page = read_ledger(lambda reader: _collect(reader, where, order, limit, cursor))
    if as_json:
        print_json(_items_as_json(page))
    else:
        with_errors = where.retrying or where.status == "failed"
        _print_page(page.items, page.next, now, with_errors=with_errors)


@app.command("show")
def show_event(
    id_or_key: Annotated[
        str,
        typer.Argument(metavar="ID_OR_KEY", help="An id, its beginning, or the key of an event."),
    ],
    source: Annotated[str, typer.Option("--source", help="The source of the key.")] = "webhooks",
    payload: Annotated[
        bool, typer.Option("--payload", help="Print only the payload, byte for byte.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one event, or only its payload."""
    from ackbox.cli.event_lookup import as_builtins, find_detail, find_payload, read_ledger

    if payload and as_json:
        raise typer.BadParameter("Give either --payload or --json, not both.")
    if payload:
        _print_payload(read_ledger(lambda reader: find_payload(reader, id_or_key, source)))
        return
    detail = read_ledger(lambda reader: find_detail(reader, id_or_key, source))
    event = as_builtins(detail.event)
    if as_json:
        errors = [as_builtins(run) for run in detail.errors]
        print_json({**event, "errors": errors, "items": _items_as_json(detail.items)})
    else:
        rows = [(name, "-" if value is None else str(value)) for name, value in event.items()]
        print_table(("field", "value"), rows)
        events_explain.print_last_traceback(detail)
        _print_items(detail)


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
            raise typer.BadParameter("This order needs --source.", param_hint="--order source")
        position = parse_source_cursor(cursor) if cursor else None
        if cursor and position is None:
            raise _bad_cursor()
        return await collect_of_source(reader, where, limit=limit, cursor=position)
    if cursor and not re.fullmatch("[0-9]{1,18}", cursor):
        raise _bad_cursor()
    start = int(cursor) if cursor else None
    return await collect(reader, where, order=Order(order), limit=limit, cursor=start)


def _items_as_json(page: "Page | SourcePage") -> dict[str, object]:
    from ackbox.cli.event_lookup import as_builtins

    following = page.next if isinstance(page.next, int | None) else str(page.next)
    return {"items": [as_builtins(event) for event in page.items], "next": following}


def _print_items(detail: "EventDetail") -> None:
    """Print the first events that were made from this event, if there are any."""
    from ackbox.app import utc_now

    if not detail.items.items:
        return
    typer.echo("\nevents made from it:")
    _print_page(detail.items.items, None, utc_now(), with_errors=False)
    if detail.items.next is not None:
        command = f"ackbox events list --parent {detail.event.id} --order oldest"
        typer.echo(f"there are more: {command}", err=True)


def _bad_cursor() -> typer.BadParameter:
    return typer.BadParameter("Use a cursor that a list printed.", param_hint="--cursor")


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
        typer.echo(f"there are more events: --cursor {following}", err=True)


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
