"""`Ledger.record` as an operation of the writer.

The insert itself decides which events are new. A batch goes to SQLite in few large calls, and in
the usual case, when all events are new, no row comes back: the writer thread and the event loop
compete for the interpreter lock at every row that is bound or fetched separately.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import apsw
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ackbox.errors import InvalidEvent
from ackbox.model import (
    Clock,
    Envelope,
    EventId,
    Receipt,
    ReceiptKind,
    Status,
    Submission,
    from_text,
    new_receipt,
    to_text,
)
from ackbox.stores.fingerprints import HAS_FINGERPRINT, WINDOW, Known, absorb
from ackbox.stores.sqlite.columns import ENVELOPE_ROW, to_row
from ackbox.stores.sqlite.write.jobs import Operation

_ROWS_PER_STATEMENT = 128
_NO_SQL_VALUE = (OverflowError, TypeError, UnicodeError)  # raised by binding a value (F28)


class KnownKey(Struct, frozen=True, array_like=True):
    """The event that has a key, or its tombstone, which has no `ledger_id`."""

    source: str
    idempotency_key: str
    ledger_id: int | None
    id: EventId
    status: Status
    created_at: str
    payload_sha256: str


ByKey = dict[tuple[str, str], KnownKey]


class RecordOperations:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._for_rows = [_widen(sql["record"], rows) for rows in range(_ROWS_PER_STATEMENT + 1)]

    def record(self, submissions: Sequence[Submission], clock: Clock) -> Operation[list[Receipt]]:
        """Return the operation. Build the rows here, on the caller's thread: the writer thread only
        has to bind them."""
        envelopes = [envelope for s in submissions for envelope in s.envelopes]
        if any(map(HAS_FINGERPRINT, envelopes)):
            return self._record_with_fingerprints(submissions, envelopes, clock)
        rows = [to_row(envelope) for envelope in envelopes]
        chunks = [
            rows[at : at + _ROWS_PER_STATEMENT] for at in range(0, len(rows), _ROWS_PER_STATEMENT)
        ]
        inserts = [(self._for_rows[len(c)], tuple(chain.from_iterable(c))) for c in chunks]
        lanes = {(e.source, e.lane) for e in envelopes if e.lane is not None}
        deliveries = [e.id for e in envelopes if e.outcome is not None]
        read = [s.cursor for s in submissions if s.cursor is not None]
        cursors = [(cursor.source, cursor.cursor, to_text(clock())) for cursor in read]

        def operation(connection: apsw.Connection) -> list[Receipt]:
            new = 0
            try:
                for insert, values in inserts:
                    connection.execute(insert, values)
                    new += connection.changes()
                if cursors:
                    connection.executemany(self._sql["save_cursor"], cursors)
            except _NO_SQL_VALUE as error:
                raise InvalidEvent(f"The event cannot be stored: {error}") from error
            if new and (lanes or deliveries):
                self._set_claimable(connection, lanes, deliveries)
            if new == len(rows):
                return [new_receipt(e, e.received_at) for e in envelopes]
            return self._note_repeats(connection, envelopes)

        return operation

    def _set_claimable(
        self,
        connection: apsw.Connection,
        lanes: Collection[tuple[str, str | None]],
        deliveries: Sequence[EventId],
    ) -> None:
        """Complete the deliveries, which are never claimed. Then make the events claimable that are
        the oldest of their lanes."""
        if deliveries:
            connection.execute(self._sql["complete_deliveries"], {"ids": _json(deliveries)})
        if lanes:
            connection.execute(self._sql["promote"], {"lanes": _json(sorted(lanes))})

    def _record_with_fingerprints(
        self, submissions: Sequence[Submission], envelopes: Sequence[Envelope], clock: Clock
    ) -> Operation[list[Receipt]]:
        """Return the operation for envelopes whose signed bytes may be known under another key. The
        writer is alone, so nothing changes between the look-up and the insert."""
        sent = [
            (e.source, e.idempotency_key, e.fingerprint.hex()) for e in envelopes if e.fingerprint
        ]
        cursors = [Submission((), s.cursor) for s in submissions]

        def operation(connection: apsw.Connection) -> list[Receipt]:
            now = clock()
            wanted = {"sent": _json(sent), "recorded_after": to_text(now - WINDOW)}
            rows = connection.execute(self._sql["known_fingerprints"], wanted).get
            known = msgspec.json.decode(rows, type=list[Known], strict=False)
            absorbed, fresh = absorb(envelopes, known)
            plain = [replace(envelope, fingerprint=None) for envelope in absorbed]
            receipts = self.record([Submission(plain), *cursors], clock)(connection)
            added = [(e.id, e.fingerprint.hex()) for e in fresh if e.fingerprint]
            values = {"fresh": _json(added), "now": to_text(now)}
            connection.execute(self._sql["add_fingerprints"], values)
            return receipts

        return operation

    def _note_repeats(
        self, connection: apsw.Connection, envelopes: Sequence[Envelope]
    ) -> list[Receipt]:
        keys = _json([(envelope.source, envelope.idempotency_key) for envelope in envelopes])
        kept = self._find(connection, "events_by_key", keys)
        if any((e.source, e.idempotency_key) not in kept for e in envelopes):
            kept = self._find(connection, "tombstones_by_key", keys) | kept
        repeats = _json(_repeats(envelopes, kept))
        connection.execute(self._sql["count_repeats"], {"repeats": repeats})
        if known := _known_deliveries(envelopes, kept):
            connection.execute(self._sql["adopt_items"], {"known": _json(known)})
        return [_receipt(envelope, kept) for envelope in envelopes]

    def _find(self, connection: apsw.Connection, block: str, keys: str) -> ByKey:
        encoded = connection.execute(self._sql[block], {"keys": keys}).get
        rows = msgspec.json.decode(encoded, type=list[KnownKey])
        return {(row.source, row.idempotency_key): row for row in rows}


def _widen(sql: str, rows: int) -> str:
    return sql.replace(ENVELOPE_ROW, ", ".join([ENVELOPE_ROW] * rows))


def _repeats(envelopes: Sequence[Envelope], kept: ByKey) -> list[tuple[int, int, int, str]]:
    """Return for each known key its row, the number of repeats, the number of conflicts, and the
    time of the last repeat."""
    times: Counter[int] = Counter()
    conflicts: Counter[int] = Counter()
    last: dict[int, str] = {}
    for envelope in envelopes:
        row = kept[envelope.source, envelope.idempotency_key]
        if row.ledger_id is not None and row.id != envelope.id:
            times[row.ledger_id] += 1
            conflicts[row.ledger_id] += _is_conflict(envelope, row)
            seen = to_text(envelope.received_at)
            last[row.ledger_id] = max(last.get(row.ledger_id, seen), seen)
    return [(row, count, conflicts[row], last[row]) for row, count in times.items()]


def _known_deliveries(envelopes: Sequence[Envelope], kept: ByKey) -> list[tuple[str, str]]:
    """Return the id of each delivery that was known, and its id in the ledger."""
    deliveries = [envelope for envelope in envelopes if envelope.outcome is not None]
    ids = [(e.id, kept[e.source, e.idempotency_key].id) for e in deliveries]
    return [(sent, known) for sent, known in ids if sent != known]


def _receipt(envelope: Envelope, kept: ByKey) -> Receipt:
    row = kept[envelope.source, envelope.idempotency_key]
    if row.id == envelope.id:
        return new_receipt(envelope, envelope.received_at)
    kind = ReceiptKind.CONFLICT if _is_conflict(envelope, row) else ReceiptKind.DUPLICATE
    return Receipt(kind, row.id, row.status, from_text(row.created_at))


def _is_conflict(envelope: Envelope, row: KnownKey) -> bool:
    return bytes.fromhex(row.payload_sha256) != envelope.payload_sha256


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
