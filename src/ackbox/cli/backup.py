"""`ackbox backup`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackbox.cli.output import warn
from ackbox.errors import CommandFailed, LedgerInUse
from ackbox.text import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ackbox.config import Settings
    from ackbox.model import BackupProgress

Report = Callable[[int, int], None]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy. It must not exist yet.")],
) -> None:
    """Copy the SQLite ledger into one new file. The server may run.

    The copy is complete: it also contains the events that are still in the -wal file. A copy of the
    ledger file made by hand, without its -wal file, lacks the newest events.
    """
    from ackbox.app import choose_admin
    from ackbox.config import load_from_process

    settings = load_from_process()
    target = file.absolute()
    with _progress() as report:
        try:
            _copy_here(choose_admin(settings).back_up(target), report)
        except LedgerInUse as in_use:
            _copy_from_server(settings, in_use, target, report)
    typer.echo(printable(f"{target} is complete in itself: it needs no -wal file"))


def _copy_from_server(
    settings: "Settings", in_use: LedgerInUse, target: Path, report: Report
) -> None:
    """Let the server copy if the target is in its `BACKUP_DIR`. Otherwise copy in this process, as
    a reader of the ledger."""
    from ackbox.app import choose_admin
    from ackbox.cli.client import call_server, find_server

    folder = settings.backup_dir
    if folder is not None and realpath(target.parent) == realpath(folder):
        call_server(settings, in_use, lambda client, url: _follow(client, url, target, report))
    elif find_server(settings) is None:
        raise in_use  # a command, or a server that starts or stops, holds it and may migrate
    else:
        _copy_here(choose_admin(settings).back_up_beside_server(target), report)


def _copy_here(steps: "AsyncGenerator[BackupProgress, None]", report: Report) -> None:
    import asyncio

    async def run() -> None:
        try:
            async for progress in steps:
                report(progress.copied_pages, progress.total_pages)
        finally:
            await steps.aclose()

    asyncio.run(run())


def _follow(client: Any, url: str, target: Path, report: Report) -> None:
    """Report the progress lines of the server. Only a last line with `done` means success."""
    import msgspec

    from ackbox.cli.client import describe_problem
    from ackbox.http.routes import Route

    with client.stream("POST", Route.BACKUP.url(url), json={"name": target.name}) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(describe_problem(response))
        for line in response.iter_lines():
            progress = msgspec.json.decode(line)
            if "error" in progress:
                raise CommandFailed(f"The server at {url} made no copy: {progress['error']}")
            if "done" in progress:
                return
            report(progress["copied_pages"], progress["total_pages"])
    raise CommandFailed(
        f"The server at {url} stopped before the copy was complete. Nothing was kept; run the "
        "command again."
    )


@contextmanager
def _progress() -> Iterator[Report]:
    """Show a bar on a terminal; elsewhere print a line for each tenth."""
    if not sys.stderr.isatty():
        yield _tenths()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=None)
        yield lambda copied, total: bar.update(task, completed=copied, total=total)


def _tenths() -> Report:
    reported = 0

    def report(copied: int, total: int) -> None:
        nonlocal reported
        tenths = copied * 10 // max(total, 1)
        if tenths > reported:
            reported = tenths
            warn(f"copied {copied} of {total} pages ({tenths * 10} %)")

    return report
