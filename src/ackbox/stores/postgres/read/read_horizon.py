"""The read horizon: the highest `ledger_id` up to which every event is visible.

Numbers are assigned before the commit. A reader that continues from the last number it saw would
never see an event whose number was assigned earlier and committed later. So every ingest
transaction holds an advisory lock while it is open, and the key of the lock holds the number just
before the first `ledger_id` of that transaction. A key has 64 bits, and a database may have several
ledgers: half of the bits are the oid of the ledger's table, and half are the low bits of the
number."""

from ackbox.stores.postgres.database import Session

_MODULUS = 1 << 32


async def last_readable(session: Session) -> int:
    """Return the last assigned number, or the number before the first that may still be
    uncommitted. The assigned number is read before the locks: an ingest that begins in between gets
    higher numbers, which do not matter."""
    (row,) = await session.fetch("last_ledger_id")
    last_assigned = int(row[0])
    open_ingests = await session.fetch("open_ingests")
    return min([last_assigned, *(nearest(low, last_assigned) for (low,) in open_ingests)])


def nearest(low: int, last_assigned: int) -> int:
    """Return the number with these low bits that is nearest to the last assigned one. Transactions
    end within seconds, so none is behind by half of the modulus. A transaction that began since is
    ahead."""
    half = _MODULUS // 2
    return last_assigned + (low - last_assigned + half) % _MODULUS - half
