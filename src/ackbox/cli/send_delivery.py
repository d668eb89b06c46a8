"""`ackbox send --source`: a sample delivery, signed as the sender of a source would sign it."""

from typing import TYPE_CHECKING
from uuid import uuid4

import typer

from ackbox.cli.output import warn
from ackbox.cli.send import DEFAULT_TYPE, post
from ackbox.cli.sources import find_source

if TYPE_CHECKING:
    from ackbox.model import Accepted, Handshake, Refusal


def send_deliveries(
    name: str,
    target: str | None,
    event_type: str,
    key: str | None,
    body: bytes | None,
    url: str | None,
    count: int,
) -> None:
    """Send `count` deliveries to a source of the running server, and print the receipts."""
    from ackbox.app import open_source, utc_now
    from ackbox.cli.client import open_client, server_url
    from ackbox.config import load_from_process
    from ackbox.http.routes import Route

    source = open_source(find_source(name, target))
    server = server_url(load_from_process(), url)
    path = Route.DELIVER.url("", source=name)
    with open_client(None) as client:
        for number in range(count):
            request = source.sample(
                path, utc_now(), key=key or str(uuid4()), event_type=event_type, body=body
            )
            if number == 0:
                _warn_of_unused(source.receive(request), key, event_type)
            typer.echo(post(client, server, request.url, dict(request.headers), request.body))


def _warn_of_unused(
    result: "Accepted | Refusal | Handshake", key: str | None, event_type: str
) -> None:
    """Say which of the given values the source will not find in the delivery: its sender has no
    place for them, or the given payload is sent unchanged."""
    from ackbox.model import Accepted

    if not isinstance(result, Accepted):
        return
    event = result.envelopes[-1]  # of a delivery with several events, an item
    if key not in (None, event.idempotency_key):
        warn(f"--key {key} is not used: this delivery has the key {event.idempotency_key}")
    if event_type not in (DEFAULT_TYPE, event.event_type):
        warn(f"TYPE {event_type} is not used: this delivery has the type {event.event_type}")
