"""Rows of the table `submissions`, on their way into the ledger."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from ackbox.model import Envelope, EventId, RandomBits, SentEvent, seal_sent_event

MOVE_ROWS = 500
MOVE_BYTES = 8 * 1024 * 1024
"""A batch takes no further row once it holds so many bytes."""


class SubmittedRow(Struct, frozen=True):
    """A row as `take_submissions` returns it: the columns are in this order."""

    submission_id: int
    source: str
    idempotency_key: str
    event_type: str
    lane: str | None
    transport: str
    parent: EventId | None
    content_type: str
    payload: bytes


def to_envelopes(
    rows: Iterable[tuple[Any, ...]], now: datetime, random_bits: RandomBits
) -> list[Envelope]:
    """Return the envelopes of these rows, in the order in which the rows were written."""
    ordered = sorted((SubmittedRow(*row) for row in rows), key=lambda row: row.submission_id)
    return [_to_envelope(row, now, random_bits) for row in ordered]


def _to_envelope(row: SubmittedRow, now: datetime, random_bits: RandomBits) -> Envelope:
    sent = SentEvent(
        row.source, row.idempotency_key, row.event_type, row.lane, row.content_type, row.payload
    )
    return seal_sent_event(sent, now, random_bits, transport=row.transport, parent=row.parent)
