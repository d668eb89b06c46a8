"""On PostgreSQL, repeats of an event whose row another transaction has locked are counted apart."""

from typing import Any, cast

import msgspec

from ackbox.model import Envelope, ReceiptKind, Status
from ackbox.stores.postgres.database import Database
from ackbox.stores.postgres.write.record import record
from support.ledgers.events import NOON, envelope


class BusyDatabase:
    """A database in which another transaction has locked the event that was just inserted."""

    def __init__(self, inserted: Envelope) -> None:
        self._inserted = inserted
        self.counted: list[dict[str, Any]] = []

    async def fetch(self, block: str, **values: Any) -> list[dict[str, Any]]:
        if block == "record":
            return [{"new": 1, "now": NOON}]
        if block == "repeat":
            return [{"known": msgspec.json.encode([self._known()]).decode()}]
        self.counted.append(values)
        return []

    def _known(self) -> list[Any]:
        kept = self._inserted
        key = [kept.source, kept.idempotency_key, kept.id]
        return [*key, Status.PROCESSING, NOON, kept.payload_sha256.hex(), True]


async def test_an_event_is_no_repeat_of_itself() -> None:  # L6
    first = envelope("k")
    sent = [first, envelope("k"), envelope("k", b'"other"')]
    database = BusyDatabase(first)
    receipts = await record(cast(Database, database), sent, [])
    kinds = [ReceiptKind.NEW, ReceiptKind.DUPLICATE, ReceiptKind.CONFLICT]
    assert [receipt.kind for receipt in receipts] == kinds
    assert database.counted == [{"source": "webhooks", "key": "k", "times": 2, "conflicts": 1}]
