"""Up to which number the ledger can be read without a gap.

Numbers are given before commits are made: a reader that goes on from the last number it saw would
never see one that was given earlier and committed later. So an ingest transaction holds a lock, as
long as it is open, whose key shows the number before its first. A database may have several
ledgers, and a key has 64 bits: half of them name the ledger, by the table's oid, and half are the
low bits of the number.
"""

from ackbox.stores.postgres.database import Session

_TURN = 1 << 32  # after so many numbers the low bits are the same again


async def last_readable(session: Session) -> int:
    """What was given up to now, unless it may still be uncommitted. The numbers are read first: who
    gets one later than that does not matter here."""
    (row,) = await session.fetch("last_ledger_id")
    given = int(row[0])
    doors = await session.fetch("open_ingests")
    return min([given, *(nearest(low, given) for (low,) in doors)])


def nearest(low: int, given: int) -> int:
    """The number with these low bits that is nearest to the last one given. Transactions end within
    seconds: none is behind by half a turn, and one that began since is ahead."""
    half = _TURN // 2
    return given + (low - given + half) % _TURN - half
