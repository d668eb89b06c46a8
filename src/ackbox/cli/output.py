"""What commands print. Text that came from outside steers neither the terminal nor rich."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence

import typer

_UNBOUNDED = 100_000


def printable(text: str) -> str:
    """Each character that does more than show itself, as its escape: also line breaks, and what
    turns the direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escape(c) for c in text)


def escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def print_json(value: object) -> None:
    """In ASCII, so that nothing in it means anything to a terminal."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, cut: Collection[str] = ()
) -> None:
    """In the width of the terminal: some columns are cut to fit, or else cells wrap. In full where
    it is none."""
    from rich.console import Console, OverflowMethod
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _UNBOUNDED, highlight=False)
    overflow: OverflowMethod = "ellipsis" if cut else "fold"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=bool(cut) and heading not in cut)
    for row in rows:
        table.add_row(
            *(Text(printable(cell), no_wrap=bool(cut), overflow=overflow) for cell in row)
        )
    console.print(table)


def warn(line: str) -> None:
    typer.echo(printable(line), err=True)
