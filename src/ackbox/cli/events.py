"""`ackbox events list` and `ackbox events show`."""

import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from ackbox.cli.output import escape, print_json, print_table

if TYPE_CHECKING:
    from ackbox.model import EventFilter, EventRecord, Page
    from ackbox.ports import Reader

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SHORT_ID = 18  # its millisecond and 12 bits of chance; `show` takes it too
_STATUSES = "pending, processing, completed, failed; or received, processed, error, dead_letter"

Status = Annotated[str | None, typer.Option("--status", help=f"Only in this state: {_STATUSES}.")]
Source = Annotated[str | None, typer.Option("--source", help="Only of this source.")]
Type = Annotated[str | None, typer.Option("--type", help="Only of exactly this type.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Received at or after: a time (UTC), or how long ago, as 2h."),
]
Until = Annotated[str | None, typer.Option("--until", help="Received before; as --since.")]
Ordering = Annotated[
    Literal["newest", "oldest"], typer.Option("--order", help="Which come first, by arrival.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]
Cursor = Annotated[
    int | None, typer.Option("--cursor", min=0, help="Go on from where the last list ended.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.callback()
def _about() -> None:
    """Look at the events in the ledger; a server may run or not."""


@app.command("list")
def list_events(  # noqa: PLR0913 - each option is an argument
    *,
    status: Status = None,
    source: Source = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    order: Ordering = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List events by arrival. Status `error` means: waits for another run after one that failed."""
    from ackbox.app import utc_now
    from ackbox.cli.reading import collect
    from ackbox.model import Order

    now = utc_now()
    where = _filter(status, source, event_type, since, until, now)
    page = _read(
        lambda reader: collect(reader, where, order=Order(order), limit=limit, cursor=cursor)
    )
    if as_json:
        print_json({"items": [_as_builtins(event) for event in page.items], "next": page.next})
    else:
        _print_page(page, now)


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
    if payload and as_json:
        raise typer.BadParameter("--payload and --json exclude each other.")
    if payload:
        _print_payload(_read(lambda reader: _payload(reader, wanted, source)))
        return
    event = _as_builtins(_read(lambda reader: _event(reader, wanted, source)))
    if as_json:
        print_json(event)
    else:
        rows = [(name, "-" if value is None else str(value)) for name, value in event.items()]
        print_table(("field", "value"), rows)


def _read(work: "Callable[[Reader], Coroutine[Any, Any, T]]") -> T:
    import asyncio

    from ackbox.app import open_ledger_to_read
    from ackbox.config import load_from_process

    reader = open_ledger_to_read(load_from_process())

    async def run() -> T:
        try:
            return await work(reader)
        finally:
            await reader.close()

    return asyncio.run(run())


async def _event(reader: "Reader", wanted: str, source: str) -> "EventRecord":
    from ackbox.cli.reading import find

    return await find(reader, wanted, source)


async def _payload(reader: "Reader", wanted: str, source: str) -> bytes:
    from ackbox.errors import CommandFailed

    event = await _event(reader, wanted, source)
    if (content := await reader.payload(event.id)) is None:
        raise CommandFailed(f"The event {event.id} was removed just now.")
    return content


def _filter(
    status: str | None,
    source: str | None,
    event_type: str | None,
    since: str | None,
    until: str | None,
    now: datetime,
) -> "EventFilter":
    from msgspec.structs import replace

    from ackbox.model import EventFilter, check_name, filter_by_status

    where = EventFilter() if status is None else filter_by_status(status)
    if where is None:
        raise typer.BadParameter(f"It must be {_STATUSES}.", param_hint="--status")
    return replace(
        where,
        source=source and check_name("source", source),
        event_type=event_type and check_name("event_type", event_type),
        since=_moment("--since", since, now),
        until=_moment("--until", until, now),
    )


def _moment(option: str, text: str | None, now: datetime) -> datetime | None:
    from ackbox.cli.moments import parse_moment

    try:
        return None if text is None else parse_moment(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _print_page(page: "Page", now: datetime) -> None:
    if not page.items:
        typer.echo("no events", err=True)
        return
    headings = ("id", "type", "source", "status", "attempts", "age", "key")
    print_table(headings, [_row(event, now) for event in page.items], cut={"type", "key"})
    if page.next is not None:
        typer.echo(f"there is more: --cursor {page.next}", err=True)


def _row(event: "EventRecord", now: datetime) -> tuple[str, ...]:
    from ackbox.cli.moments import show_age

    return (
        event.id[:_SHORT_ID] if sys.stdout.isatty() else event.id,
        event.event_type,
        event.source,
        event.status,
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


def _as_builtins(event: "EventRecord") -> dict[str, Any]:
    from msgspec.structs import asdict

    from ackbox.model import to_text

    return {
        name: to_text(value) if isinstance(value, datetime) else value
        for name, value in asdict(event).items()
    }
