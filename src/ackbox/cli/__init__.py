"""The command line. Commands import what they need when they run, so that `--help` stays fast."""

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from ackbox import __version__
from ackbox.cli import (
    backup,
    config,
    doctor,
    events,
    migrate,
    promote,
    quarantine,
    send,
    serve,
    sources,
    stats,
    work,
)
from ackbox.cli.output import warn
from ackbox.errors import AckboxError, SettingError

_HELP = {"--help", "-h"}
_WARN_THEMSELVES = {"serve", "work", "doctor"}  # in the log, or as a finding

app = typer.Typer(
    name="ackbox",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.command("work")(work.work)
app.command("send")(send.send)
app.add_typer(events.app, name="events")
app.add_typer(sources.app, name="sources")
app.add_typer(quarantine.app, name="quarantine")
app.command("stats")(stats.stats)
app.command("config")(config.config)
app.command("migrate")(migrate.migrate)
app.command("backup")(backup.backup)
app.command("promote")(promote.promote)
app.command("doctor")(doctor.doctor)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ackbox {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A durable inbox for webhooks and events."""
    if context.invoked_subcommand not in _WARN_THEMSELVES and not _HELP & set(sys.argv):
        _warn_of_variables()


def _warn_of_variables() -> None:
    """Warn before a command works on a ledger that its user may not expect (N3)."""
    from ackbox.config import resolve_process

    with suppress(SettingError):  # the command itself reports it
        for line in resolve_process().warn_of_variables():
            warn(f"ackbox: {line}")


def main() -> None:
    """Run the command. An `AckboxError` becomes one line on standard error and exit code 1."""
    sys.exit(_flush_output(_run()))


def _run() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the locale may lack a character
    try:
        app(prog_name="ackbox")  # `python -m ackbox` shows the same help and completion
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except AckboxError as error:
        return _fail(str(error))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return _report_lost_output(error)
    return 0


def _flush_output(code: int) -> int:
    """Flush, and return the exit code. A reader that is gone, such as `head`, is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        return _report_lost_output(error)
    return code


def _report_lost_output(error: OSError) -> int:
    _drop_output()
    return _fail(f"The output could not be written: {error.strerror}.")


def _drop_output() -> None:
    """Discard the rest of the output: otherwise the interpreter would fail again at exit, when it
    flushes the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(reason: str) -> int:
    warn(f"ackbox: {reason}")
    return 1
