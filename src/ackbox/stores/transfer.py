"""What a promotion carries from one store to another: rows of plain values, table by table.

Both sides give a row in the same form: times and ids as text, JSON in its shortest form, the
columns in the order of `TABLES`. Only so can one be held against the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

Row = tuple[Any, ...]
RowKey = tuple[Any, ...]
"""The key of the last row that was carried."""

EVENTS = (
    *("ledger_id", "id", "source", "idempotency_key", "event_type", "status", "outcome"),
    *("attempts", "run", "unsettled", "last_error", "error_code", "errors", "retry_after"),
    *("processor_id", "lease_until", "claimable_at", "ingest_count", "conflict_count"),
    *("source_sequence", "source_emitted_at", "lane", "channel", "sender", "recipient"),
    *("provider_message_id", "transport", "verified_by", "request_id", "trace", "created_at"),
    *("updated_at", "last_seen_at", "processed_at", "replayed_at", "content_type"),
    *("payload_sha256", "headers", "payload"),
)
TABLES: Mapping[str, Sequence[str]] = {
    "events": EVENTS,
    "tombstones": (
        *("source", "idempotency_key", "id", "status", "created_at", "payload_sha256"),
        *("tombstoned_at", "ledger_id"),
    ),
    "cursors": ("source", "cursor", "updated_at"),
    "audit": ("audit_id", "at", "actor", "peer", "action", "event_id", "detail"),
}
"""In the order in which they are carried."""

KEYS: Mapping[str, int] = {"events": 1, "tombstones": 2, "cursors": 1, "audit": 1}
"""How many of the first columns are the key."""

FIRST: Mapping[str, RowKey] = {
    "events": (0,),
    "tombstones": ("", ""),
    "cursors": ("",),
    "audit": (0,),
}
"""Before every key."""


class Batch(Struct, frozen=True):
    table: str
    rows: Sequence[Row]

    @property
    def last(self) -> RowKey:
        return self.rows[-1][: KEYS[self.table]]


class Sequences(Struct, frozen=True):
    """The last ones given, also to events that were deleted since."""

    ledger_id: int
    audit_id: int


def checksum(table: str, rows: Iterable[Row]) -> bytes:
    """Of rows whose payload is its hash already."""
    found = sha256()
    for row in sorted(rows, key=lambda row: row[: KEYS[table]]):
        found.update(msgspec.msgpack.encode(row))
    return found.digest()


def shortest(text: str | None) -> str | None:
    """The same JSON however it was written."""
    if text is None:
        return None
    return msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode()
