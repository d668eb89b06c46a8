"""`Ledger.record`: one statement inserts a batch, and the insert decides which events are new.

Rows are inserted in key order, so that two batches cannot deadlock. Of equal keys in a batch the
first is recorded. A second statement counts repeats; it does not wait for locks while it holds any.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter

import asyncpg
import msgspec
from msgspec import Struct

from ackbox.errors import Unavailable
from ackbox.model import Cursor, Envelope, EventId, Receipt, ReceiptKind, Status, new_receipt
from ackbox.stores.columns import RECORDED
from ackbox.stores.fingerprints import HAS_FINGERPRINT, WINDOW, absorb
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.write.lanes import lock_lanes, promote

_RECORDED = attrgetter(*RECORDED)

Key = tuple[str, str]


class KnownKey(Struct, frozen=True, array_like=True):
    """The record of a known key: its event, or the tombstone of a deleted event."""

    source: str
    idempotency_key: str
    id: EventId
    status: Status
    created_at: datetime
    payload_sha256: str
    busy: bool
    """Another transaction has the row locked, so the repeat is not counted yet."""


async def record(
    database: Database, envelopes: Sequence[Envelope], cursors: Sequence[Cursor]
) -> list[Receipt]:
    """Record the envelopes. Nearly always all of them are new, which takes one round trip."""
    if any(map(HAS_FINGERPRINT, envelopes)):
        absorbed, inserted = await _insert_with_fingerprints(database, envelopes, cursors)
        return await receipts_of(database, absorbed, inserted)
    if any(envelope.lane or envelope.outcome for envelope in envelopes):
        async with database.transaction() as session:
            inserted = await insert(session, envelopes, cursors)
    else:
        (inserted,) = await database.fetch("record", **_values(envelopes, cursors))
    return await receipts_of(database, envelopes, inserted)


async def insert(
    session: Session, envelopes: Sequence[Envelope], cursors: Sequence[Cursor]
) -> asyncpg.Record:
    """Insert the envelopes whose keys are new, in the transaction of the caller. Return the result
    for `receipts_of`, which is called after the commit."""
    lanes = {(e.source, e.lane) for e in envelopes if e.lane is not None}
    if lanes:
        await lock_lanes(session, lanes)
    (inserted,) = await session.fetch("record", **_values(envelopes, cursors))
    if deliveries := [envelope for envelope in envelopes if envelope.outcome is not None]:
        await session.fetch("complete_deliveries", ids=[delivery.id for delivery in deliveries])
        if inserted["new"] < len(envelopes):
            await _adopt_items(session, deliveries)
    if lanes:
        await promote(session, lanes)
    return inserted


async def receipts_of(
    database: Database, envelopes: Sequence[Envelope], inserted: asyncpg.Record
) -> list[Receipt]:
    if inserted["new"] == len(envelopes):
        return [new_receipt(envelope, inserted["now"]) for envelope in envelopes]
    return await _count_repeats(database, envelopes)


async def _insert_with_fingerprints(
    database: Database, envelopes: Sequence[Envelope], cursors: Sequence[Cursor]
) -> tuple[Sequence[Envelope], asyncpg.Record]:
    """Insert envelopes whose signed bytes may be known under another key. Return the envelopes with
    the keys by which the ledger has them. If another transaction recorded one of the fingerprints
    meanwhile, begin again: that fingerprint is then visible."""
    unsigned = [envelope for envelope in envelopes if envelope.fingerprint]
    sent = _keys(unsigned) | {"hashes": [envelope.fingerprint for envelope in unsigned]}
    del sent["ids"]
    while True:
        rows = await database.fetch("known_fingerprints", **sent, window=WINDOW)
        absorbed, fresh = absorb(envelopes, [(row["known"], row["first_key"]) for row in rows])
        with suppress(_FingerprintTaken):
            async with database.transaction() as session:
                inserted = await insert(session, absorbed, cursors)
                await _add_fingerprints(session, fresh)
            return absorbed, inserted


async def _adopt_items(session: Session, deliveries: Sequence[Envelope]) -> None:
    """Let new items of a delivery that was known belong to the delivery in the ledger."""
    sent = _keys(deliveries)
    del sent["hashes"]
    await session.fetch("adopt_items", **sent)


class _FingerprintTaken(Exception):
    """Another transaction has recorded one of the fingerprints meanwhile."""


async def _add_fingerprints(session: Session, fresh: Sequence[Envelope]) -> None:
    ids, hashes = [e.id for e in fresh], [e.fingerprint for e in fresh]
    (row,) = await session.fetch("add_fingerprints", ids=ids, hashes=hashes, window=WINDOW)
    if row["taken"]:
        raise _FingerprintTaken


async def _count_repeats(database: Database, envelopes: Sequence[Envelope]) -> list[Receipt]:
    """Count the envelopes whose key was known, or is repeated in this call. The statement is
    separate from the insert, so that it sees the rows that other transactions have committed
    meanwhile."""
    (row,) = await database.fetch("repeat", **_keys(envelopes))
    known = _known(row["known"])
    for kept in known.values():
        if kept.busy:
            await _count_repeats_of(database, kept, envelopes)
    return [_receipt(envelope, known.get(_key(envelope))) for envelope in envelopes]


async def _count_repeats_of(
    database: Database, kept: KnownKey, envelopes: Sequence[Envelope]
) -> None:
    """Wait for a locked row in a statement of its own: holding no other lock, the statement cannot
    deadlock."""
    same_key = [e for e in envelopes if _key(e) == (kept.source, kept.idempotency_key)]
    repeats = [envelope for envelope in same_key if envelope.id != kept.id]
    await database.fetch(
        "repeat_one",
        source=kept.source,
        key=kept.idempotency_key,
        times=len(repeats),
        conflicts=sum(_is_conflict(envelope, kept) for envelope in repeats),
    )


def _values(envelopes: Sequence[Envelope], cursors: Sequence[Cursor]) -> dict[str, object]:
    """Return the cursors, and an array for each recorded column. An array is empty if all values
    are None: `unnest` fills it up with NULL, and the driver need not encode each value."""
    positions = sorted({cursor.source: cursor.cursor for cursor in cursors}.items())
    nothing = (None,) * len(envelopes)
    columns = zip(*map(_RECORDED, envelopes), strict=True)
    arrays = [() if column == nothing else column for column in columns] or [()] * len(RECORDED)
    return {
        "cursor_sources": [source for source, _ in positions],
        "cursors": [position for _, position in positions],
        **dict(zip(RECORDED, arrays, strict=True)),
    }


def _keys(envelopes: Sequence[Envelope]) -> dict[str, object]:
    return {
        "ids": [e.id for e in envelopes],
        "sources": [e.source for e in envelopes],
        "keys": [e.idempotency_key for e in envelopes],
        "hashes": [e.payload_sha256 for e in envelopes],
    }


def _known(text: str | None) -> dict[Key, KnownKey]:
    rows = msgspec.json.decode(text or "[]", type=list[KnownKey])
    return {(row.source, row.idempotency_key): row for row in rows}


def _key(envelope: Envelope) -> Key:
    return envelope.source, envelope.idempotency_key


def _receipt(envelope: Envelope, kept: KnownKey | None) -> Receipt:
    if kept is None:  # pruned and purged since the insert found its key: a retry records it
        raise Unavailable("The event with this key was just deleted. Send it again.")
    if kept.id == envelope.id:
        return new_receipt(envelope, kept.created_at)
    kind = ReceiptKind.CONFLICT if _is_conflict(envelope, kept) else ReceiptKind.DUPLICATE
    return Receipt(kind, kept.id, kept.status, kept.created_at)


def _is_conflict(envelope: Envelope, kept: KnownKey) -> bool:
    return bytes.fromhex(kept.payload_sha256) != envelope.payload_sha256
