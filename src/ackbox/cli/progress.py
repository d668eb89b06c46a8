"""Progress of a long command: a bar on a terminal, elsewhere a line for each tenth."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ackbox.cli.output import warn

Report = Callable[[str, int, int], None]
"""The name of the step, how much of it is done, and how much there is."""


@contextmanager
def progress_bar(unit: str) -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield _tenths(unit)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(
            task, description=step, completed=done, total=total
        )


def _tenths(unit: str) -> Report:
    reported = ("", 0)

    def report(step: str, done: int, total: int) -> None:
        nonlocal reported
        tenths = done * 10 // max(total, 1)
        if tenths > (reported[1] if reported[0] == step else 0):
            reported = (step, tenths)
            warn(f"{step} {done} of {total} {unit} ({tenths * 10} %)")

    return report


@contextmanager
def counter(unit: str) -> Iterator[Callable[[int], None]]:
    """Show a count on a terminal, for a command whose total is unknown; elsewhere show nothing."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(f"{{task.completed}} {unit}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count)
