"""A start on the ledger of a process that is gone, as operations of the writer.

Its leases end. And if the clock was set back meanwhile, what it wrote lies in the future: such an
event would wait until then, so it is dated anew (F25).
"""

from datetime import datetime

import apsw

from ackbox.model import to_text
from ackbox.stores.sqlite.jobs import Operation
from ackbox.stores.sqlite.statements import Statements

_ROWS = 10_000


def end_leases(now: datetime) -> Operation[bool]:
    """Returns whether the clock was set back since."""

    def operation(connection: apsw.Connection) -> bool:
        sql = Statements(connection)
        set_back = bool(sql.fetch("has_future_rows", now=to_text(now)))
        sql.run("end_leases", now=to_text(now))
        return set_back

    return operation


def redate(after: int, now: datetime) -> Operation[int | None]:
    """Of the next pending events after `after`, those written in the future wait from now on as
    long as they were to wait then. Returns where to go on; None at the end."""

    def operation(connection: apsw.Connection) -> int | None:
        sql = Statements(connection)
        last: int | None
        last, rows = sql.fetch("scan_pending", after=after, limit=_ROWS, now=to_text(now))
        sql.run("redate", rows=rows, now=to_text(now))
        return last

    return operation
