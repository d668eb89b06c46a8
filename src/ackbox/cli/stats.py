"""`ackbox stats`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackbox.cli.output import print_json, print_table

if TYPE_CHECKING:
    from datetime import datetime

    from ackbox.model import Stats


def stats(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Count the events in each status, and say how long the oldest pending one has waited."""
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import reading
    from ackbox.cli.moments import show_age
    from ackbox.model import Status

    found, now = reading(lambda reader: reader.stats()), utc_now()
    if as_json:
        print_json(as_builtins(found, now))
        return
    print_table(("status", "events"), [(name, str(found.counts[name])) for name in Status])
    if found.oldest_pending is not None:
        typer.echo(f"the oldest pending event has waited for {show_age(found.lag(now))}")


def as_builtins(found: "Stats", now: "datetime") -> dict[str, Any]:
    """The same as `GET /api/stats` has."""
    from ackbox.model import to_text

    oldest = found.oldest_pending
    return {
        "events": {str(status): count for status, count in found.counts.items()},
        "oldest_pending_at": None if oldest is None else to_text(oldest),
        "oldest_pending_seconds": found.lag(now).total_seconds(),
    }
