"""The rows that a promotion transfers from SQLite to PostgreSQL, as plain values.

Both stores represent a row in the same form, so that two rows can be compared: times and ids as
text, JSON in canonical form, the columns in the order of `TABLES`.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.stores.columns import EVENT_COLUMNS

Row = tuple[Any, ...]
RowKey = tuple[Any, ...]
"""The values of a row's key columns."""

TABLES: Mapping[str, Sequence[str]] = {
    "events": tuple(EVENT_COLUMNS),
    "tombstones": (
        *("source", "idempotency_key", "id", "status", "created_at", "payload_sha256"),
        *("tombstoned_at", "ledger_id"),
    ),
    "fingerprints": ("source", "payload_sha256", "idempotency_key", "recorded_at"),
    "cursors": ("source", "cursor", "updated_at"),
    "audit": ("audit_id", "at", "actor", "peer", "action", "event_id", "detail"),
    "submissions": (
        *("submission_id", "submitted_at", "source", "idempotency_key", "event_type", "lane"),
        *("transport", "parent_id", "content_type", "payload"),
    ),
    "quarantine": (
        *("quarantine_id", "source", "reason", "detail", "delivery_id", "received_at"),
        *("kept_at", "size", "head", "body"),
    ),
}
"""The columns of each table. The tables are transferred in this order."""

KEY_WIDTHS: Mapping[str, int] = {
    "events": 1,
    "tombstones": 2,
    "fingerprints": 2,
    "cursors": 1,
    "audit": 1,
    "submissions": 1,
    "quarantine": 1,
}
"""How many columns, counted from the first, form the key of each table."""

START_KEYS: Mapping[str, RowKey] = {
    "events": (0,),
    "tombstones": ("", ""),
    "fingerprints": ("", ""),
    "cursors": ("",),
    "audit": (0,),
    "submissions": (0,),
    "quarantine": (0,),
}
"""A key that sorts before every key of the table. A hash in a key is hexadecimal text."""


class Batch(Struct, frozen=True):
    table: str
    rows: Sequence[Row]

    @property
    def last(self) -> RowKey:
        return self.rows[-1][: KEY_WIDTHS[self.table]]


class Sequences(Struct, frozen=True):
    """The last numbers assigned, including those of rows that were deleted since."""

    ledger_id: int
    audit_id: int
    submission_id: int
    quarantine_id: int


def checksum(table: str, rows: Iterable[Row]) -> bytes:
    """Return a hash of the rows in key order. Payloads must already be replaced by their hashes."""
    digest = sha256()
    for row in sorted(rows, key=lambda row: row[: KEY_WIDTHS[table]]):
        digest.update(msgspec.msgpack.encode(row))
    return digest.digest()


def canonical_json(text: str | None) -> str | None:
    """Return the same text for equal JSON, whatever its spacing and key order."""
    if text is None:
        return None
    return msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode()
