"""Recovery at the start, on the writer thread.

The leases of the previous process end. If the clock was set back since, due times that the previous
process wrote may be too far in the future. The events with such due times keep their delays,
counted from now (F25).
"""

from datetime import datetime

from ackbox.model import to_text
from ackbox.stores.sqlite.limits import LIMITS
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.writer import Writer


async def recover(writer: Writer, now: datetime, *, rows: int = LIMITS.recovery_rows) -> None:
    """Make the events claimable that a dead process left in `processing` (W4). This process holds
    the lock, so the process that held their leases is gone. Each transaction checks at most
    `rows` rows."""
    after = 0 if await writer.run(end_leases, now) else None
    while after is not None:
        after = await writer.run(reschedule_future_rows, after, now, rows)


def end_leases(sql: Statements, now: datetime) -> bool:
    """End all leases. Return whether the clock was set back after the last write."""
    set_back = bool(sql.fetch("has_future_rows", now=to_text(now)))
    sql.run("end_leases", now=to_text(now))
    return set_back


def reschedule_future_rows(sql: Statements, after: int, now: datetime, limit: int) -> int | None:
    """Reschedule pending events whose last change is in the future, because the clock was set back.
    Each keeps its delay, counted from now. Handle the next rows after the cursor `after`, and
    return the next cursor, or None at the end."""
    last: int | None
    last, rows = sql.fetch("scan_pending", after=after, limit=limit, now=to_text(now))
    sql.run("reschedule_future_rows", rows=rows, now=to_text(now))
    return last
