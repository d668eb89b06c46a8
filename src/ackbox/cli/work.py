"""`ackbox work`."""

from typing import Annotated

import typer

from ackbox.cli.listen_address import Host, Port, read_options
from ackbox.cli.user_modules import load_inbox


def work(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:INBOX", help="Your inbox, such as app:inbox.")
    ],
    host: Host = None,
    port: Port = None,
) -> None:
    """Process events, but accept none. Needs PostgreSQL.

    The process runs until SIGTERM or Ctrl-C, and serves only /health, /ready and /metrics. `ackbox
    serve` accepts events; it processes them too, unless it has --no-workers.
    """
    raise typer.Exit(load_inbox(target).work(read_options(host=host, port=port)))
