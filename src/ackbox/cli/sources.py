"""`ackbox sources` with its commands `list` and `check`."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackbox.cli.doctor import print_finding
from ackbox.cli.output import print_json, print_table
from ackbox.cli.user_modules import load_inbox
from ackbox.errors import CommandFailed, SettingError

if TYPE_CHECKING:
    from ackbox.app import SignedWebhook, SourceDeclaration
    from ackbox.model import Finding, InboundRequest

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Target = Annotated[
    str | None,
    typer.Option(
        "--inbox",
        metavar="MODULE:INBOX",
        help="Your inbox, such as app:inbox, if it declares sources with inbox.source.",
    ),
]


@app.callback()
def _about() -> None:
    """List the declared sources, or check one of them."""


@app.command("list")
def list_sources(
    inbox: Target = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the declared sources. Secrets are shown by their references."""
    rows = [_describe(source) for source in declared(inbox).values()]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    else:
        typer.echo("No source is declared. Write a table [sources.NAME] into ackbox.toml.")


@app.command("check")
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the source.")],
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", help="A recorded HTTP request: its first line, headers, a blank line, body."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="When the sample arrived, as 2026-01-31T12:00. Default: now."),
    ] = None,
    inbox: Target = None,
) -> None:
    """Check the table of a source and its secret, and whether a recorded request verifies.

    The exit code is 1 if a check fails. Nothing is sent or stored, and no server is needed.
    """
    request = None if sample is None else read_sample(sample, _read_time(at))
    findings = list(_examine(name, request, inbox))
    for finding in findings:
        print_finding(finding)
    raise typer.Exit(1 if any(finding.verdict == "fail" for finding in findings) else 0)


def declared(target: str | None) -> "dict[str, SourceDeclaration]":
    from ackbox.app import declare_sources

    return declare_sources(load_inbox(target).resolve().sources)


def find_source(name: str, target: str | None) -> "SourceDeclaration":
    sources = declared(target)
    if name not in sources:
        names = ", ".join(sources) or "none is declared"
        where = "" if target else "; for a source that your code declares, give --inbox"
        raise CommandFailed(f"There is no source {name}. The sources are: {names}{where}.")
    return sources[name]


def _describe(source: "SourceDeclaration") -> dict[str, str]:
    from ackbox.http.routes import Route

    return {
        "name": source.name,
        "path": Route.DELIVER.url("", source=source.name),
        "preset": source.preset.name,
        "verified": "yes" if source.is_verified else "no",
        "secret": " ".join(source.secrets) or "-",
        "origin": source.origin,
    }


def _examine(
    name: str, request: "InboundRequest | None", target: str | None
) -> "Iterator[Finding]":
    from ackbox.app import open_source
    from ackbox.model import Finding, Verdict

    try:
        declaration = find_source(name, target)
    except SettingError as error:
        yield Finding("table", Verdict.FAIL, str(error))
        return
    yield _check_table(declaration)
    try:
        source = open_source(declaration)
    except SettingError as error:
        yield Finding("secret", Verdict.FAIL, str(error))
        return
    if declaration.secrets:
        yield Finding("secret", Verdict.OK, f"{' '.join(declaration.secrets)} can be read")
    if request is not None:
        yield _check_sample(source, request)


def _check_table(declaration: "SourceDeclaration") -> "Finding":
    from ackbox.model import Finding, Verdict

    detail = f"preset {declaration.preset.name}, declared in {declaration.origin}"
    if declaration.is_verified:
        return Finding("table", Verdict.OK, detail)
    remedy = "Use the preset of the sender, or check the senders in a proxy."
    return Finding("table", Verdict.WARN, f"{detail}: anyone can send to it", remedy)


def _check_sample(source: "SignedWebhook", request: "InboundRequest") -> "Finding":
    from ackbox.model import Accepted, Finding, Refusal, RefusalReason, Verdict

    match source.receive(request):
        case Refusal(_, reason, detail):
            is_late = reason is RefusalReason.BAD_TIME
            remedy = "Give --at, the time when the sample arrived." if is_late else None
            return Finding("sample", Verdict.FAIL, f"{reason}: {detail}", remedy)
        case Accepted((event, *_) as envelopes):
            parts = "" if len(envelopes) == 1 else f", with {len(envelopes) - 1} events in it"
            detail = f"verified: key {event.idempotency_key}, type {event.event_type}{parts}"
            return Finding("sample", Verdict.OK, detail)
        case _:
            return Finding("sample", Verdict.OK, "a handshake, which is answered")


def _read_time(text: str | None) -> datetime:
    from ackbox.app import utc_now
    from ackbox.cli.moments import parse_moment

    try:
        return utc_now() if text is None else parse_moment(text, utc_now())
    except ValueError as error:
        raise typer.BadParameter(f"--at: {error}.") from None


def read_sample(name: str, at: datetime) -> "InboundRequest":
    """Return the request in a file, which arrived at this time."""
    from ackbox.model import InboundRequest

    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(f"Cannot read {name}: {error.strerror}.") from None
    head, body = _split_head(content)
    first, *lines = head.decode("latin-1").splitlines() or [""]
    pairs = [line.partition(":") for line in lines]
    headers = tuple((key.strip().lower(), value.strip()) for key, _, value in pairs)
    words = first.split(" ")
    if len(words) < 2 or not all(colon for _, colon, _ in pairs):
        raise CommandFailed(
            f"{name} is not a recorded request: a line such as `POST /in/github HTTP/1.1` is "
            "expected, then headers, a blank line and the body."
        )
    request = InboundRequest(words[0], words[1], headers, body, at)
    return _cut_body(request)


def _split_head(content: bytes) -> tuple[bytes, bytes]:
    """Split at the first blank line, whether lines end with CRLF or LF."""
    head, *body = re.split(rb"\r?\n\r?\n", content, maxsplit=1)
    return head, b"".join(body)


def _cut_body(request: "InboundRequest") -> "InboundRequest":
    """Leave out what an editor added after the body, if Content-Length says how long the body
    is."""
    from msgspec.structs import replace

    length = request.header("content-length") or ""
    return replace(request, body=request.body[: int(length)]) if length.isdecimal() else request
