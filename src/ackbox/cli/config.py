"""`ackbox config`."""

from typing import Annotated

import typer

from ackbox.cli.output import print_json, print_table


def config(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every setting with its value and origin. Secrets are masked."""
    from ackbox.config import explain_process

    rows = explain_process()
    if as_json:
        print_json([{"name": r.name, "value": r.value, "origin": r.origin} for r in rows])
    else:
        headings = ("setting", "value", "origin")
        print_table(headings, [(r.name, r.value, r.origin) for r in rows])
