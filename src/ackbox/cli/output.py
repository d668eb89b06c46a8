"""Output of commands. Control characters and markup in text from outside have no effect."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence

import typer

from ackbox.documentation import add_addresses, names_page
from ackbox.errors import SettingError
from ackbox.text import printable


def print_json(value: object) -> None:
    """Print JSON in ASCII, so that no character in it can control a terminal."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, cut: Collection[str] = ()
) -> None:
    """Print a table. On a terminal it fits the width: the columns in `cut` are truncated, or, if
    there are none, cells wrap."""
    shown = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_fitted(headings, shown, cut)
    else:
        _print_whole([headings, *shown])


def _print_fitted(
    headings: Sequence[str], rows: Sequence[Sequence[str]], cut: Collection[str]
) -> None:
    from rich.console import Console, OverflowMethod
    from rich.table import Table
    from rich.text import Text

    overflow: OverflowMethod = "ellipsis" if cut else "fold"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=bool(cut) and heading not in cut)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=bool(cut), overflow=overflow) for cell in row))
    Console(highlight=False).print(table)


def _print_whole(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def warn(line: str) -> None:
    """Print a line for people, on standard error."""
    typer.echo(printable(resolve_pages(line)), err=True)


def resolve_pages(text: str) -> str:
    """Replace the documentation pages that a message names with their addresses, if the settings
    can be read and have a `DOCS_URL`."""
    if not names_page(text):
        return text
    from ackbox.config import load_from_process

    try:
        docs_url = load_from_process().docs_url
    except SettingError:  # the message itself may be about a bad setting
        return text
    return add_addresses(text, None if docs_url is None else docs_url.get_secret_value())
