"""`ackbox serve`."""

from typing import Annotated

import typer

from ackbox.cli.listen_address import Host, Port, override_address
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
    inbox = load_inbox(target)
    override_address(inbox, host, port)
    if no_workers:
        inbox.settings = inbox.settings.model_copy(update={"worker_count": 0})
    raise typer.Exit(inbox.serve())
