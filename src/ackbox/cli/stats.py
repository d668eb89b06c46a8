"""`ackbox stats`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackbox.cli.output import print_json, print_table

if TYPE_CHECKING:
    from datetime import datetime

    from ackbox.model import Stats


def stats(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the number of events per status, and the age of the oldest pending event."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import read_ledger
    from ackbox.cli.moments import show_age
    from ackbox.model import Status

    now = utc_now()
    result = read_ledger(lambda reader: reader.stats(now))
    if as_json:
        print_json(as_builtins(result, now))
        return
    print_table(("status", "events"), [(name, str(result.counts[name])) for name in Status])
    if result.oldest_pending is not None:
        typer.echo(f"the oldest pending event has waited for {show_age(result.lag(now))}")


def as_builtins(result: "Stats", now: "datetime") -> dict[str, Any]:
    """Return the same fields as `GET /api/stats`."""
    from ackbox.model import to_text

    oldest = result.oldest_pending
    return {
        "events": {str(status): count for status, count in result.counts.items()},
        "oldest_pending_at": None if oldest is None else to_text(oldest),
        "oldest_pending_seconds": result.lag(now).total_seconds(),
    }
