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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist yet.")],
) -> None:
    """Copy the ledger into one new file, also while its server runs.

    The copy is complete in itself: what stands in the -wal file is in it. Copying the ledger file
    by hand, without its -wal file, would lose the newest events.
    """
    from ackbox.app import copy_ledger
    from ackbox.config import load_from_process

    settings = load_from_process()
    target = file.absolute()
    with _progress() as report:
        try:
            _copy_here(copy_ledger(settings, target), report)
        except LedgerInUse as in_use:
            _copy_held(settings, in_use, target, report)
    typer.echo(printable(f"{target} is complete in itself: it needs no -wal file"))


def _copy_held(settings: "Settings", in_use: LedgerInUse, target: Path, report: Report) -> None:
    """The server itself copies into its `BACKUP_DIR`; anywhere else this process does, as a
    reader."""
    from ackbox.app import copy_beside_server, running_server
    from ackbox.cli.client import ask_holder

    folder = settings.backup_dir
    if folder is not None and realpath(target.parent) == realpath(folder):
        ask_holder(settings, in_use, lambda client, url: _follow(client, url, target, report))
    elif (holder := running_server(settings)) is None or holder.url is None:
        raise in_use  # by a command, or a server that starts or stops: it may migrate
    else:
        _copy_here(copy_beside_server(settings, target), report)


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
    """The server's own account of how far it is; only its last line makes a copy complete."""
    import msgspec

    from ackbox.cli.client import problem_of

    with client.stream("POST", f"{url}/api/backup", json={"name": target.name}) as response:
        if not response.is_success:
            response.read()
            raise CommandFailed(problem_of(response))
        for line in response.iter_lines():
            said = msgspec.json.decode(line)
            if "error" in said:
                raise CommandFailed(f"{url} made no copy: {said['error']}")
            if "done" in said:
                return
            report(said["copied_pages"], said["total_pages"])
    raise CommandFailed(f"{url} stopped before the copy was complete; nothing was kept.")


@contextmanager
def _progress() -> Iterator[Report]:
    """A bar for people; a line for each tenth where nobody watches."""
    if not sys.stderr.isatty():
        yield _tenths()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=None)
        yield lambda copied, total: bar.update(task, completed=copied, total=total)


def _tenths() -> Report:
    told = 0

    def report(copied: int, total: int) -> None:
        nonlocal told
        tenths = copied * 10 // max(total, 1)
        if tenths > told:
            told = tenths
            warn(f"copied {copied} of {total} pages ({tenths * 10} %)")

    return report
