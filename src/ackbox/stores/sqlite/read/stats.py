"""The counts, the age and the backlog of a SQLite ledger."""

from datetime import datetime, timedelta

from ackbox.model import Stats, Status, from_text, to_text
from ackbox.stores.sqlite.statements import Statements


def read_stats(sql: Statements, now: datetime) -> Stats:
    counts = {Status(status): count for status, count in sql.run("status_counts")}
    oldest = sql.run("oldest_pending").get
    return Stats(counts, oldest and from_text(oldest), _newest_age(sql, now))


def count_waiting(sql: Statements, now: datetime) -> int:
    """Return how many pending events are neither due later nor parked. `count_not_due` also counts
    the running leases, so those are subtracted."""
    counts: dict[str, int] = dict(sql.run("status_counts"))
    not_due = sql.run("count_not_due", now=to_text(now)).get - counts[Status.PROCESSING]
    parked = sql.run("count_all_parked").get
    return int(counts[Status.PENDING]) - max(int(not_due), 0) - int(parked)


def _newest_age(sql: Statements, now: datetime) -> timedelta | None:
    times = sql.run("newest_time").get or "", sql.run("newest_tombstone").get
    newest = max(times)  # ISO 8601 texts compare like times
    return now - from_text(newest) if newest else None
