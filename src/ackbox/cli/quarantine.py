"""`ackbox quarantine` with its commands."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackbox.cli.event_selection import Yes
from ackbox.cli.output import print_json, print_table, warn
from ackbox.cli.sources import Target
from ackbox.errors import CommandFailed
from ackbox.text import escape, printable

if TYPE_CHECKING:
    from ackbox.model import QuarantineFilter, QuarantinePage

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_REASONS = "unsigned, bad_signature, bad_time, malformed, unreadable, not_supported"
Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", min=1, help="Ids of requests, as `list` prints them."),
]
Source = Annotated[str | None, typer.Option("--source", help="Only requests to this source.")]
Reason = Annotated[
    str | None, typer.Option("--reason", help=f"Only requests refused for this: {_REASONS}.")
]
Every = Annotated[bool, typer.Option("--all", help="Every request in the quarantine.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; count the requests.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _about() -> None:
    """List, show, release or drop requests that failed verification."""


@app.command("list")
def list_requests(
    *,
    source: Source = None,
    reason: Reason = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="The largest number of requests.")
    ] = 50,
    cursor: Annotated[
        int | None, typer.Option("--cursor", min=1, help="Continue where the last list ended.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List requests that failed verification, oldest first."""
    from ackbox.cli.quarantine_operations import as_builtins, read_page

    page = read_page(_make_filter(source, reason), limit=limit, cursor=cursor)
    if as_json:
        print_json({"items": [as_builtins(item) for item in page.items], "next": page.next})
    else:
        _print_page(page)


@app.command("show")
def show_request(
    number: Annotated[
        int, typer.Argument(metavar="ID", min=1, help="The id of a request, as `list` prints it.")
    ],
    raw: Annotated[bool, typer.Option("--raw", help="Print only the body, byte for byte.")] = False,
    as_json: AsJson = False,
    inbox: Target = None,
) -> None:
    """Show one request. Headers that may carry a secret are named without their values.

    If the source is not declared, most headers may carry one: name your inbox if it declares the
    source.
    """
    from ackbox.cli.quarantine_operations import describe, read_request

    if raw and as_json:
        raise typer.BadParameter("Give either --raw or --json, not both.")
    kept = read_request(number)
    if raw:
        sys.stdout.buffer.write(kept.request.body)
    elif as_json:
        print_json(describe(kept, inbox))
    else:
        _print_request(describe(kept, inbox))


@app.command("release")
def release(
    ids: Ids = None,
    *,
    source: Source = None,
    reason: Reason = None,
    every: Every = False,
    dry_run: DryRun = False,
    inbox: Target = None,
) -> None:
    """Verify requests again with the present secrets, and record those that are right.

    A request that the sender has sent again meanwhile becomes no second event. A request that fails
    again stays in the quarantine. A running server verifies with the secrets that it has read at
    its start.
    """
    from ackbox.cli.quarantine_operations import release_ids, release_matching

    if ids:
        _refuse_options_beside_ids(source, reason, every or dry_run)
        results = release_ids(ids, inbox)
        for number in ids:
            typer.echo(printable(f"{number}  {results.get(number, _GONE)}"))
        if any(_is_refusal(results.get(number, _GONE)) for number in ids):
            raise CommandFailed("Not all requests could be released.")
        return
    where = _require_filter(source, reason, every)
    done = release_matching(where, inbox, dry_run=dry_run)
    verb = "would be released" if dry_run else "released"
    typer.echo(
        f"{done['seen']} requests: {done['released']} {verb}, {done['duplicate']} duplicates, "
        f"{done['refused']} failed again, {done['no_source']} of undeclared sources"
    )


@app.command("drop")
def drop(
    ids: Ids = None,
    *,
    source: Source = None,
    reason: Reason = None,
    every: Every = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete requests from the quarantine. They cannot be released any more."""
    from ackbox.cli.quarantine_operations import drop_ids, drop_matching

    if ids:
        _refuse_options_beside_ids(source, reason, every or dry_run)
        dropped = drop_ids(ids)
        for number in ids:
            typer.echo(f"{number}  {'dropped' if number in dropped else _GONE}")
        if len(dropped) < len(set(ids)):
            raise CommandFailed("Not all requests could be dropped.")
        return
    where = _require_filter(source, reason, every)
    requests = drop_matching(where, dry_run=True)
    if dry_run or not requests:
        typer.echo(f"{requests} requests would be dropped")
    elif _confirm(requests, yes=yes):
        typer.echo(f"{drop_matching(where, dry_run=False)} requests dropped")


_GONE = "refused: it is not in the quarantine"


def _is_refusal(result: str) -> bool:
    return result.startswith("refused")


def _refuse_options_beside_ids(source: str | None, reason: str | None, other: bool) -> None:
    if source or reason or other:
        raise typer.BadParameter("Give ids, or options that select requests, but not both.")


def _require_filter(source: str | None, reason: str | None, every: bool) -> "QuarantineFilter":
    if every and (source or reason):
        raise typer.BadParameter("Give --all, or options that select requests, but not both.")
    if not (every or source or reason):
        raise typer.BadParameter("Give ids, or --source, --reason or --all.")
    return _make_filter(source, reason)


def _make_filter(source: str | None, reason: str | None) -> "QuarantineFilter":
    from ackbox.model import QuarantineFilter, RefusalReason

    try:
        return QuarantineFilter(source, None if reason is None else RefusalReason(reason))
    except ValueError:
        raise typer.BadParameter(
            f"The reason must be one of {_REASONS}.", param_hint="--reason"
        ) from None


def _confirm(requests: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed("Nothing was dropped. Without a terminal, confirm with --yes.")
    return typer.confirm(f"Drop {requests} requests?", err=True)


def _print_page(page: "QuarantinePage") -> None:
    from ackbox.app import utc_now
    from ackbox.cli.moments import show_age

    if not page.items:
        warn("no requests")
        return
    now = utc_now()
    rows = [
        (str(item.id), item.source, item.reason, show_age(now - item.received_at), item.detail)
        for item in page.items
    ]
    print_table(("id", "source", "reason", "age", "detail"), rows, cut={"detail"})
    if page.next is not None:
        typer.echo(f"there are more requests: --cursor {page.next}", err=True)


def _print_request(shown: dict[str, Any]) -> None:
    headers, text, preview = shown.pop("headers"), shown.pop("text"), shown.pop("hex")
    rows = [(name, "-" if value is None else str(value)) for name, value in shown.items()]
    rows += [(f"header {name}", value) for name, value in headers]
    print_table(("field", "value"), rows)
    typer.echo("")
    if text is None:
        typer.echo(f"{preview} (hexadecimal; the whole body: --raw)")
    else:
        typer.echo("".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text))
