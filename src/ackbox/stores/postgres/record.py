"""`Ledger.record`: the insert itself decides what is new, a batch is one statement.

ON CONFLICT cannot touch a row twice in one statement, so equal keys are collapsed first; and rows
go in by key, or two batches could wait for each other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ackbox.model import Checkpoint, Envelope, EventId, Receipt, ReceiptKind, Status
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.doors import DOOR_TAG
from ackbox.stores.postgres.lanes import hold_lanes, promote

Key = tuple[str, str]


class Kept(Struct, frozen=True, array_like=True):
    """What stands for a key: its row, or the tombstone of one, which has no `ledger_id`."""

    source: str
    idempotency_key: str
    ledger_id: int | None
    id: EventId
    status: Status
    created_at: datetime
    payload_sha256: str


Known = Mapping[Key, Kept]


async def record(
    database: Database, envelopes: Sequence[Envelope], checkpoint: Checkpoint | None
) -> list[Receipt]:
    """Nearly always all of it is new, and one round trip is all."""
    leaders = _leaders(envelopes)
    values = _values(leaders, checkpoint)
    lanes = {(e.source, e.lane) for e in leaders if e.lane is not None}
    if lanes:
        async with database.transaction() as session:
            await hold_lanes(session, lanes)
            (row,) = await session.fetch("record", **values)
            await promote(session, lanes)
    else:
        (row,) = await database.fetch("record", **values)
    if row["new"] == len(envelopes):
        return [_new(envelope, row["now"]) for envelope in envelopes]
    return await _note_repeats(database, envelopes, leaders, row)


async def _note_repeats(
    database: Database, envelopes: Sequence[Envelope], leaders: Sequence[Envelope], row: Any
) -> list[Receipt]:
    """Those that were known, and those that came twice in this call."""
    known: Known = _known(row["kept"])
    if row["new"] + len(known) < len(leaders) or len(leaders) < len(envelopes):
        async with database.transaction() as session:
            known = await _look_up(session, envelopes)
            led = {leader.id for leader in leaders}
            buried = {key for key, kept in known.items() if kept.ledger_id is None}
            again = [e for e in envelopes if e.id not in led or _key(e) in buried]
            await _count(session, again, known)
    return [_receipt(envelope, known, row["now"]) for envelope in envelopes]


async def _look_up(session: Session, envelopes: Sequence[Envelope]) -> Known:
    keys = sorted({_key(envelope) for envelope in envelopes})
    asked = {"sources": [source for source, _ in keys], "keys": [key for _, key in keys]}
    (buried,) = await session.fetch("kept_buried", **asked)
    (kept,) = await session.fetch("kept", **asked)
    return {**_known(buried[0]), **_known(kept[0])}


async def _count(session: Session, again: Sequence[Envelope], known: Known) -> None:
    times: Counter[int] = Counter()
    conflicts: Counter[int] = Counter()
    for envelope in again:
        kept = known[_key(envelope)]
        if kept.ledger_id is not None and kept.id != envelope.id:
            times[kept.ledger_id] += 1
            conflicts[kept.ledger_id] += _is_conflict(envelope, kept)
    rows = sorted(times)
    if rows:
        counts = {"times": [times[row] for row in rows], "rows": rows}
        await session.fetch("count_repeats", **counts, conflicts=[conflicts[row] for row in rows])


def _leaders(envelopes: Sequence[Envelope]) -> list[Envelope]:
    first: dict[Key, Envelope] = {}
    for envelope in envelopes:
        first.setdefault(_key(envelope), envelope)
    return list(first.values())


def _values(envelopes: Sequence[Envelope], checkpoint: Checkpoint | None) -> dict[str, object]:
    return {
        "door_tag": DOOR_TAG,
        "checkpoint_source": checkpoint and checkpoint.source,
        "cursor": checkpoint and checkpoint.cursor,
        "ids": [e.id for e in envelopes],
        "sources": [e.source for e in envelopes],
        "keys": [e.idempotency_key for e in envelopes],
        "types": [e.event_type for e in envelopes],
        "content_types": [e.content_type for e in envelopes],
        "headers": [e.headers for e in envelopes],
        "payloads": [e.payload for e in envelopes],
        "hashes": [e.payload_sha256 for e in envelopes],
        "sequences": [e.source_sequence for e in envelopes],
        "emitted": [e.source_emitted_at for e in envelopes],
        "lanes": [e.lane for e in envelopes],
        "transports": [e.transport for e in envelopes],
        "verified": [e.verified_by for e in envelopes],
        "request_ids": [e.request_id for e in envelopes],
    }


def _known(found: str | None) -> dict[Key, Kept]:
    rows = msgspec.json.decode(found or "[]", type=list[Kept])
    return {(row.source, row.idempotency_key): row for row in rows}


def _key(envelope: Envelope) -> Key:
    return envelope.source, envelope.idempotency_key


def _new(envelope: Envelope, now: datetime) -> Receipt:
    return Receipt(ReceiptKind.NEW, envelope.id, Status.PENDING, now)


def _receipt(envelope: Envelope, known: Known, now: datetime) -> Receipt:
    kept = known.get(_key(envelope))
    if kept is None or kept.id == envelope.id:
        return _new(envelope, now if kept is None else kept.created_at)
    kind = ReceiptKind.CONFLICT if _is_conflict(envelope, kept) else ReceiptKind.DUPLICATE
    return Receipt(kind, kept.id, kept.status, kept.created_at)


def _is_conflict(envelope: Envelope, kept: Kept) -> bool:
    return bytes.fromhex(kept.payload_sha256) != envelope.payload_sha256
