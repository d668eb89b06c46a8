"""`ackbox send`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from ackbox.errors import CommandFailed
from ackbox.text import printable

if TYPE_CHECKING:
    import httpx2

DEFAULT_TYPE = "webhook"
Type = Annotated[str, typer.Argument(metavar="TYPE", help="The type of the event.")]
Key = Annotated[str | None, typer.Option("--key", help="The idempotency key. Default: a new UUID.")]
Payload = Annotated[str | None, typer.Option("--payload", help="The payload: any JSON value.")]
File = Annotated[
    str | None, typer.Option("--file", help="Read the payload from this file; - is standard input.")
]
Lane = Annotated[
    str | None, typer.Option("--lane", help="The lane. Events of a lane run in order.")
]
Url = Annotated[
    str | None, typer.Option("--url", help="The server. Default: the one that holds DB_PATH.")
]
Count = Annotated[
    int,
    typer.Option(
        "--count", min=1, max=100_000, help="Send this many; without --key each has its own key."
    ),
]


SourceName = Annotated[
    str | None,
    typer.Option(
        "--source", help="Deliver to this declared source, signed as its sender would sign."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--inbox",
        metavar="MODULE:INBOX",
        help="Your inbox, such as app:inbox, if it declares the source with inbox.source.",
    ),
]


def send(  # noqa: PLR0913 - each option is an argument
    event_type: Type = DEFAULT_TYPE,
    *,
    key: Key = None,
    payload: Payload = None,
    file: File = None,
    lane: Lane = None,
    url: Url = None,
    count: Count = 1,
    source: SourceName = None,
    inbox: Target = None,
) -> None:
    """Post an event to a running server, to try things out.

    The command prints the receipt: new, duplicate (the key is known) or conflict (the key is known
    with another payload, and the first payload is kept). It sends INGEST_TOKEN if that is set.
    With --source, it sends a sample delivery to a source instead, with the source's own secret.
    """
    if source is not None:
        from ackbox.cli.send_delivery import send_deliveries

        if lane is not None:
            raise typer.BadParameter("--lane is for events: a source finds the lane itself.")
        content = None if payload is None and file is None else _read_given(payload, file)
        send_deliveries(source, inbox, event_type, key, content, url, count)
        return
    from ackbox.cli.client import open_client, server_url
    from ackbox.config import load_from_process

    settings = load_from_process()
    fields = _fields(event_type, key, lane)
    content = _read_payload(payload, file)
    target = server_url(settings, url)
    with open_client(settings.ingest_token) as client:
        for _ in range(count):
            typer.echo(post_event(client, target, _body(fields, content)))


def _fields(event_type: str, key: str | None, lane: str | None) -> dict[str, str]:
    from ackbox.model import check_name

    given = {"event_type": event_type, "idempotency_key": key, "lane": lane}
    return {name: check_name(name, text) for name, text in given.items() if text is not None}


def _read_payload(payload: str | None, file: str | None) -> bytes:
    """Return the payload, unchanged: the server stores exactly these bytes."""
    import msgspec

    content = _read_given(payload, file)
    try:
        msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise CommandFailed(
            f"The payload is not JSON: {error}. A string needs quotes: --payload '\"text\"'."
        ) from None
    return content


def _read_given(payload: str | None, file: str | None) -> bytes:
    if payload is not None and file is not None:
        raise typer.BadParameter("Give either --payload or --file, not both.")
    text = "{}" if payload is None else payload
    return _read_file(file) if file is not None else text.encode(errors="surrogateescape")


def _read_file(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(f"Cannot read {name}: {error.strerror}.") from None


def _body(fields: dict[str, str], content: bytes) -> bytes:
    import msgspec

    event = {"idempotency_key": str(uuid4()), **fields}
    return msgspec.json.encode({**event, "payload": msgspec.Raw(content)})


def post_event(client: "httpx2.Client", target: str, body: bytes) -> str:
    """Post one event, and return its receipt in one line."""
    from ackbox.http.routes import Route

    headers = {"content-type": "application/json"}
    return post(client, target, Route.POST_EVENT.path, headers, body)


def post(
    client: "httpx2.Client", target: str, url: str, headers: Mapping[str, str], body: bytes
) -> str:
    """Post a request to the server, and return the receipt in one line."""
    import httpx2

    from ackbox.cli.client import describe_problem, explain

    try:
        response = client.post(target + url, content=body, headers=dict(headers))
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        raise explain(error, target) from None
    if not response.is_success:
        raise CommandFailed(describe_problem(response))
    return _describe(response)


def _describe(response: "httpx2.Response") -> str:
    from ackbox.cli.client import describe_problem

    if response.headers.get("content-type", "").startswith("text/xml"):
        return f"accepted   {response.status_code}: the sender of this source expects no receipt"
    try:
        receipt = response.json()
        parts = [receipt[name] for name in ("id", "status", "idempotency_key")]
    except (ValueError, TypeError, KeyError):
        raise CommandFailed(describe_problem(response)) from None
    return printable(f"{_kind(response, receipt):<9}  id {parts[0]}  {parts[1]}  key {parts[2]}")


def _kind(response: "httpx2.Response", receipt: Mapping[str, object]) -> str:
    if response.headers.get("ackbox-conflict") == "true":
        return "conflict"
    is_duplicate = receipt.get("duplicate", response.status_code != 202)
    return "duplicate" if is_duplicate else "new"
