"""The command line. Commands import what they need when they run, so that `--help` stays fast."""

import sys

import typer

from ackbox import __version__
from ackbox.cli import events, ledger, running, sending, settings
from ackbox.errors import AckboxError

app = typer.Typer(
    name="ackbox",
    help="A durable inbox for webhooks and events.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(running.serve)
app.command("send")(sending.send)
app.add_typer(events.app, name="events")
app.command("config")(settings.config)
app.command("migrate")(ledger.migrate)
app.command("backup")(ledger.backup)
app.command("doctor")(ledger.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ackbox {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def main() -> None:
    """The entry point: an error of ours is one line on standard error and exit code 1."""
    try:
        app()
    except AckboxError as error:
        typer.echo(f"ackbox: {error}", err=True)
        sys.exit(1)
