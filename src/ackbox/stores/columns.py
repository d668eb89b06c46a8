"""The columns of an event, declared once for both databases.

A migration of each database creates them. `columns.py` of each store derives the column lists of
its SQL from this table: a line `-- here: name` in a named block stands for such a list. The fields
of `Envelope`, `Claim` and `EventRecord` have the names of columns, and say which of them are
recorded, claimed and shown. The key, `ledger_id`, stays first; a new column may stand anywhere
after it.
"""

from collections.abc import Mapping
from enum import Enum, auto

from ackbox.model import Envelope


class Kind(Enum):
    """The type of a column. Each database has its own name and form for it."""

    INTEGER = auto()
    TEXT = auto()
    TIME = auto()
    UUID = auto()
    JSON = auto()
    BYTES = auto()


EVENT_COLUMNS: Mapping[str, Kind] = {
    "ledger_id": Kind.INTEGER,
    "id": Kind.UUID,
    "source": Kind.TEXT,
    "idempotency_key": Kind.TEXT,
    "event_type": Kind.TEXT,
    "status": Kind.TEXT,
    "outcome": Kind.TEXT,
    "attempts": Kind.INTEGER,
    "run": Kind.INTEGER,
    "unsettled": Kind.INTEGER,
    "last_error": Kind.TEXT,
    "error_code": Kind.TEXT,
    "errors": Kind.JSON,
    "retry_after": Kind.TIME,
    "processor_id": Kind.TEXT,
    "lease_until": Kind.TIME,
    "claimable_at": Kind.TIME,
    "ingest_count": Kind.INTEGER,
    "conflict_count": Kind.INTEGER,
    "source_sequence": Kind.INTEGER,
    "source_emitted_at": Kind.TIME,
    "lane": Kind.TEXT,
    "channel": Kind.TEXT,
    "sender": Kind.TEXT,
    "recipient": Kind.TEXT,
    "provider_message_id": Kind.TEXT,
    "transport": Kind.TEXT,
    "verified_by": Kind.TEXT,
    "request_id": Kind.TEXT,
    "parent_id": Kind.UUID,
    "trace": Kind.TEXT,
    "created_at": Kind.TIME,
    "updated_at": Kind.TIME,
    "last_seen_at": Kind.TIME,
    "processed_at": Kind.TIME,
    "replayed_at": Kind.TIME,
    "content_type": Kind.TEXT,
    "payload_sha256": Kind.BYTES,
    "headers": Kind.TEXT,
    "payload": Kind.BYTES,
}
"""PostgreSQL also has `payload_json`, which it derives from `payload`."""

_NOT_RECORDED = frozenset({"outcome", "fingerprint"})
"""The fields of an envelope that few envelopes have. They come last, and the insert leaves them
out, so that it is fast: other statements complete deliveries and save fingerprints."""

ENVELOPE_FIELDS = tuple(n for n in Envelope.__struct_fields__ if n not in _NOT_RECORDED)
RECORDED = tuple(name for name in ENVELOPE_FIELDS if name in EVENT_COLUMNS)
"""The columns whose values come from the envelope as they are. `received_at` is not one of them:
several columns get that time."""

LEASE = frozenset({"lease_until", "claimable_at"})
"""The columns that describe the lease of a running event. A promotion does not transfer leases:
the process that held them is gone."""
