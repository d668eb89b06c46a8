"""Recovery at the start, as operations of the writer.

The leases of the previous process end. If the clock was set back since, due times that the previous
process wrote may be too far in the future. These events keep their delays, counted from now (F25).
"""

from datetime import datetime

import apsw

from ackbox.model import to_text
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.jobs import Operation

_ROWS = 10_000


def end_leases(now: datetime) -> Operation[bool]:
    """End all leases. The operation returns whether the clock was set back after the last write."""

    def operation(connection: apsw.Connection) -> bool:
        sql = Statements(connection)
        set_back = bool(sql.fetch("has_future_rows", now=to_text(now)))
        sql.run("end_leases", now=to_text(now))
        return set_back

    return operation


def reschedule_future_rows(after: int, now: datetime) -> Operation[int | None]:
    """Reschedule pending events whose last change is in the future, because the clock was set back.
    Each keeps its delay, counted from now. The operation handles the next rows after the cursor
    `after`, and returns the next cursor, or None at the end."""

    def operation(connection: apsw.Connection) -> int | None:
        sql = Statements(connection)
        last: int | None
        last, rows = sql.fetch("scan_pending", after=after, limit=_ROWS, now=to_text(now))
        sql.run("reschedule_future_rows", rows=rows, now=to_text(now))
        return last

    return operation
