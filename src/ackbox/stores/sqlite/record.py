"""`Ledger.record` as an operation of the writer.

Rows are bound in few large statements: one call a row makes the writer thread and the event loop
fight over the interpreter lock.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import apsw

from ackbox.model import (
    Checkpoint,
    Clock,
    Envelope,
    EventId,
    Receipt,
    ReceiptKind,
    Status,
    from_text,
    to_text,
)
from ackbox.stores.sqlite.writer import Operation

_ROWS_A_STATEMENT = (128, 64, 32, 16, 8, 4, 2, 1)
_ONE_ROW = re.compile(r"VALUES (\([?, ]+\))")

Row = tuple[Any, ...]
Kept = dict[tuple[str, str], tuple[EventId, str, str, bytes]]


class RecordOperations:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._by_rows = {rows: _widen(sql["record"], rows) for rows in _ROWS_A_STATEMENT}

    def record(
        self, envelopes: Sequence[Envelope], checkpoint: Checkpoint | None, clock: Clock
    ) -> Operation[list[Receipt]]:
        """Encodes at once, in the caller: what cannot be encoded never reaches the transaction."""
        rows = [_row(envelope) for envelope in envelopes]
        cursor = checkpoint and {
            "source": checkpoint.source,
            "cursor": checkpoint.cursor,
            "now": to_text(clock()),
        }

        def operation(connection: apsw.Connection) -> list[Receipt]:
            kept = self._upsert(connection, rows)
            receipts = [_receipt(envelope, kept) for envelope in envelopes]
            self._count(connection, receipts)
            if cursor:
                connection.execute(self._sql["save_checkpoint"], cursor)
            return receipts

        return operation

    def _upsert(self, connection: apsw.Connection, rows: Sequence[Row]) -> Kept:
        kept: Kept = {}
        start = 0
        for size in _ROWS_A_STATEMENT:
            while len(rows) - start >= size:
                values = tuple(chain.from_iterable(rows[start : start + size]))
                start += size
                for source, key, *row in connection.execute(self._by_rows[size], values):
                    kept[source, key] = tuple(row)
        return kept

    def _count(self, connection: apsw.Connection, receipts: Sequence[Receipt]) -> None:
        new = sum(receipt.kind is ReceiptKind.NEW for receipt in receipts)
        if new:
            connection.execute(self._sql["tally"], {"status": Status.PENDING, "change": new})


def _widen(sql: str, rows: int) -> str:
    return _ONE_ROW.sub(lambda found: "VALUES " + ", ".join([found[1]] * rows), sql)


def _row(envelope: Envelope) -> Row:
    """In the order of the `record` block."""
    now = to_text(envelope.received_at)
    emitted = envelope.source_emitted_at
    return (
        envelope.id,
        envelope.source,
        envelope.idempotency_key,
        envelope.event_type,
        envelope.content_type,
        envelope.headers,
        envelope.payload,
        envelope.payload_sha256,
        envelope.source_sequence,
        None if emitted is None else to_text(emitted),
        envelope.lane,
        envelope.transport,
        envelope.verified_by,
        envelope.request_id,
        now,
        now,
        now,
    )


def _receipt(envelope: Envelope, kept: Kept) -> Receipt:
    event_id, status, created_at, sha256 = kept[envelope.source, envelope.idempotency_key]
    if event_id == envelope.id:
        return Receipt(ReceiptKind.NEW, event_id, Status.PENDING, envelope.received_at)
    same = sha256 == envelope.payload_sha256
    kind = ReceiptKind.DUPLICATE if same else ReceiptKind.CONFLICT
    return Receipt(kind, event_id, Status(status), from_text(created_at))
