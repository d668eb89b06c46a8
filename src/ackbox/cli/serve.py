"""`ackbox serve`."""

from typing import Annotated

import typer

from ackbox.cli.listen_address import Host, Port, read_options
from ackbox.cli.user_modules import load_inbox


def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:INBOX",
            help="Your inbox, such as app:inbox. Without it, an inbox that has no handlers.",
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Accept events, but process none here.")
    ] = False,
) -> None:
    """Accept events over HTTP, store them and process them.

    The server runs until SIGTERM or Ctrl-C. Settings come from the environment and ackbox.toml;
    `ackbox config` shows them. The options here win over the settings.
    """
    workers = {"worker_count": 0} if no_workers else {}
    overrides = read_options(host=host, port=port, **workers)
    raise typer.Exit(load_inbox(target).serve(overrides))
