"""Up to which number the ledger can be read without a gap.

Numbers are given before commits are made: a reader that goes on from the last number it saw would
never see one that was given earlier and committed later. So an ingest transaction holds a lock, as
long as it is open, whose key shows the number before its first.
"""

from ackbox.stores.postgres.database import Session

DOOR_TAG = 0x5AC  # of our advisory locks among a database's others; the number takes 48 bits


async def last_readable(session: Session) -> int:
    """What was given up to now, unless it may still be uncommitted. The numbers are read first: who
    gets one later than that does not matter here."""
    (given,) = await session.fetch("last_given")
    (row,) = await session.fetch("first_open", tag=DOOR_TAG)
    return int(given[0]) if row[0] is None else min(int(given[0]), int(row[0]))
