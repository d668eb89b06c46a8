"""`Ledger.record`: the insert itself decides what is new, a batch is one statement.

Rows go in by key, or two batches could wait for each other; of equal keys in a batch the first is
taken. Repeats are counted in a second statement, which waits for nobody while it holds something.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.errors import Unavailable
from ackbox.model import Cursor, Envelope, EventId, Receipt, ReceiptKind, Status
from ackbox.stores.postgres.database import Database
from ackbox.stores.postgres.lanes import lock_lanes, promote

Key = tuple[str, str]


class Kept(Struct, frozen=True, array_like=True):
    """What stands for a key: its row, or the tombstone of one."""

    source: str
    idempotency_key: str
    id: EventId
    status: Status
    created_at: datetime
    payload_sha256: str
    busy: bool
    """It is not counted yet that it came again."""


async def record(
    database: Database, envelopes: Sequence[Envelope], cursor: Cursor | None
) -> list[Receipt]:
    """Nearly always all of it is new, and one round trip is all."""
    values = _values(envelopes, cursor)
    lanes = {(e.source, e.lane) for e in envelopes if e.lane is not None}
    if lanes:
        async with database.transaction() as session:
            await lock_lanes(session, lanes)
            (row,) = await session.fetch("record", **values)
            await promote(session, lanes)
    else:
        (row,) = await database.fetch("record", **values)
    if row["new"] == len(envelopes):
        return [_new(envelope, row["now"]) for envelope in envelopes]
    return await _note_repeats(database, envelopes)


async def _note_repeats(database: Database, envelopes: Sequence[Envelope]) -> list[Receipt]:
    """Those that were known, and those that came twice in this call. In a statement of its own,
    which sees what others committed meanwhile."""
    (row,) = await database.fetch("repeat", **_keys(envelopes))
    known = _known(row["known"])
    for kept in known.values():
        if kept.busy:
            await _wait_for(database, kept, envelopes)
    return [_receipt(envelope, known.get(_key(envelope))) for envelope in envelopes]


async def _wait_for(database: Database, kept: Kept, envelopes: Sequence[Envelope]) -> None:
    """Somebody had it locked. Waited for alone: who holds nothing else is in no circle."""
    again = [e for e in envelopes if _key(e) == (kept.source, kept.idempotency_key)]
    again = [envelope for envelope in again if envelope.id != kept.id]
    await database.fetch(
        "repeat_one",
        source=kept.source,
        key=kept.idempotency_key,
        times=len(again),
        conflicts=sum(_is_conflict(envelope, kept) for envelope in again),
    )


def _values(envelopes: Sequence[Envelope], cursor: Cursor | None) -> dict[str, object]:
    return {
        "cursor_source": cursor and cursor.source,
        "cursor": cursor and cursor.cursor,
        **_keys(envelopes),
        "types": [e.event_type for e in envelopes],
        "content_types": [e.content_type for e in envelopes],
        "headers": _or_none([e.headers for e in envelopes]),
        "payloads": [e.payload for e in envelopes],
        "sequences": _or_none([e.source_sequence for e in envelopes]),
        "emitted": _or_none([e.source_emitted_at for e in envelopes]),
        "lanes": _or_none([e.lane for e in envelopes]),
        "transports": [e.transport for e in envelopes],
        "verified": _or_none([e.verified_by for e in envelopes]),
        "request_ids": [e.request_id for e in envelopes],
    }


def _or_none(column: list[Any]) -> list[Any]:
    """`unnest` fills up short columns with NULL, and the driver takes its time for each value."""
    return column if any(value is not None for value in column) else []


def _keys(envelopes: Sequence[Envelope]) -> dict[str, object]:
    return {
        "ids": [e.id for e in envelopes],
        "sources": [e.source for e in envelopes],
        "keys": [e.idempotency_key for e in envelopes],
        "hashes": [e.payload_sha256 for e in envelopes],
    }


def _known(found: str | None) -> dict[Key, Kept]:
    rows = msgspec.json.decode(found or "[]", type=list[Kept])
    return {(row.source, row.idempotency_key): row for row in rows}


def _key(envelope: Envelope) -> Key:
    return envelope.source, envelope.idempotency_key


def _new(envelope: Envelope, now: datetime) -> Receipt:
    return Receipt(ReceiptKind.NEW, envelope.id, Status.PENDING, now)


def _receipt(envelope: Envelope, kept: Kept | None) -> Receipt:
    if kept is None:  # pruned and forgotten since the insert met it: another try stores it
        raise Unavailable("An event was forgotten while it came again. Send it again.")
    if kept.id == envelope.id:
        return _new(envelope, kept.created_at)
    kind = ReceiptKind.CONFLICT if _is_conflict(envelope, kept) else ReceiptKind.DUPLICATE
    return Receipt(kind, kept.id, kept.status, kept.created_at)


def _is_conflict(envelope: Envelope, kept: Kept) -> bool:
    return bytes.fromhex(kept.payload_sha256) != envelope.payload_sha256
