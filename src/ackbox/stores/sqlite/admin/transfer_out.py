"""The source of a transfer to PostgreSQL: a ledger that is read in batches and not changed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import apsw

from ackbox.errors import StoreError
from ackbox.stores.sqlite.admin.offline import assert_readable
from ackbox.stores.sqlite.connections import open_without_trace, translate
from ackbox.stores.sqlite.files import lock_ledger
from ackbox.stores.sqlite.names import resolve_ledger
from ackbox.stores.sqlite.statements import blocks
from ackbox.stores.sqlite.write.effects import OWN_TABLES
from ackbox.stores.transfer import (
    KEY_WIDTHS,
    TABLES,
    Batch,
    Row,
    RowKey,
    Sequences,
    canonical_json,
    checksum,
)

_ROWS = 1000
_BYTES = 4 * 1024 * 1024
_LARGE = ("payload", "errors", "head", "body")
_ERRORS = TABLES["events"].index("errors")
_PAYLOAD = TABLES["events"].index("payload")


@contextmanager
def open_source_ledger(path: Path) -> Iterator["SourceLedger"]:
    """Yield the ledger under its lock. Raise `LedgerInUse` if another process has the lock."""
    path = resolve_ledger(path)
    assert_readable(path)
    lock = lock_ledger(path)
    try:
        connection = open_without_trace(path)
        try:
            yield SourceLedger(connection, path)
        finally:
            connection.close()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise _translated(error, path) from error
    finally:
        lock.release()


class SourceLedger:
    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def identity(self) -> str:
        """Return a hash that identifies the contents: it differs for another file, and changes with
        any write to this file."""
        state = self._connection.execute(blocks()["export_state"]).get
        return sha256(str(state).encode()).hexdigest()

    def counts(self) -> dict[str, int]:
        return dict(self._connection.execute(blocks()["export_counts"]))

    def status_counts(self) -> Mapping[str, int]:
        return dict(self._connection.execute(blocks()["status_counts"]))

    def sequences(self) -> Sequences:
        (last_numbers,) = self._connection.execute(blocks()["export_sequences"])
        return Sequences(*last_numbers)

    def user_tables(self) -> list[str]:
        """Return the names of the users' tables, which are not transferred."""
        names = [name for (name,) in self._connection.execute(blocks()["table_names"])]
        return [n for n in names if n.lower() not in OWN_TABLES and not n.startswith("sqlite_")]

    def batches(self, table: str, after: RowKey) -> Iterator[Batch]:
        """Yield the rows after this key, in batches that are bounded in rows and bytes."""
        while rows := self._rows(table, after):
            batch = Batch(table, rows)
            yield batch
            after = batch.last

    def _rows(self, table: str, after: RowKey) -> list[Row]:
        rows: list[Row] = []
        size = 0
        cursor = self._connection.execute(blocks()[f"export_{table}"], (*after, _ROWS))
        for row in cursor:
            self._assert_portable(table, row)
            rows.append(_with_canonical_errors(row) if table == "events" else row)
            size += _size(table, row)
            if size >= _BYTES:
                break
        cursor.close()
        return rows

    def _assert_portable(self, table: str, row: Row) -> None:
        """Raise if a text has a NUL character. ackbox writes none, so the user has to decide what
        such a text should be."""
        if "\0" not in "".join([value for value in row if type(value) is str]):
            return
        for name, value in zip(TABLES[table], row, strict=True):
            if isinstance(value, str) and "\0" in value:
                key = ", ".join(map(str, row[: KEY_WIDTHS[table]]))
                raise StoreError(
                    f"{self._path}: {name} of {table} {key} holds a NUL character, which "
                    "PostgreSQL cannot store in a text. Correct that row, then run this again."
                )


def source_checksum(batch: Batch) -> bytes:
    """Return the checksum of a batch. Hash the payload itself, and do not trust the hash in the
    row."""
    rows = batch.rows
    if batch.table == "events":
        rows = [_with_payload_hash(row) for row in rows]
    return checksum(batch.table, rows)


def _size(table: str, row: Row) -> int:
    """Return the size of the columns that can be large. All others have bounded lengths."""
    large = [row[TABLES[table].index(name)] for name in _LARGE if name in TABLES[table]]
    return sum(len(value or "") for value in large)


def _with_payload_hash(row: Row) -> Row:
    digest = sha256(row[_PAYLOAD]).digest()
    return (*row[:_PAYLOAD], digest, *row[_PAYLOAD + 1 :])


def _with_canonical_errors(row: Row) -> Row:
    errors = row[_ERRORS]
    return row if errors is None else (*row[:_ERRORS], canonical_json(errors), *row[_ERRORS + 1 :])


def _translated(error: apsw.Error | UnicodeDecodeError, path: Path) -> Exception:
    if isinstance(error, apsw.Error):
        return translate(error, str(path))
    return StoreError(f"{path} holds a text that is not UTF-8: {error}. Nothing was changed.")
