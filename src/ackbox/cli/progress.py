"""How far a long command is: a bar for people, a line for each tenth where nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ackbox.cli.output import warn

Report = Callable[[str, int, int], None]
"""What is done, how much of it so far, and of how much."""


@contextmanager
def progress_bar(unit: str) -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield _tenths(unit)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )


def _tenths(unit: str) -> Report:
    told = ("", 0)

    def report(what: str, done: int, total: int) -> None:
        nonlocal told
        tenths = done * 10 // max(total, 1)
        if tenths > (told[1] if told[0] == what else 0):
            told = (what, tenths)
            warn(f"{what} {done} of {total} {unit} ({tenths * 10} %)")

    return report


@contextmanager
def counter(unit: str) -> Iterator[Callable[[int], None]]:
    """Where nobody knows how much there is; nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(f"{{task.completed}} {unit}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count)
