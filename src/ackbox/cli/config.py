"""`ackbox config`."""

from typing import Annotated

import typer

from ackbox.cli.output import print_json, print_table


def config(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show every setting, without secrets, and where it came from."""
    from ackbox.config import explain_process

    rows = explain_process()
    if as_json:
        print_json([{"name": r.name, "value": r.value, "origin": r.origin} for r in rows])
    else:
        headings = ("setting", "value", "from")
        print_table(headings, [(r.name, r.value, r.origin) for r in rows])
