"""`ackbox send --source`: a sample delivery, signed as the sender of a source would sign it."""

from uuid import uuid4

import typer

from ackbox.cli.send import post
from ackbox.cli.sources import find_source


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
        for _ in range(count):
            request = source.sample(
                path, utc_now(), key=key or str(uuid4()), event_type=event_type, body=body
            )
            typer.echo(post(client, server, request.url, dict(request.headers), request.body))
