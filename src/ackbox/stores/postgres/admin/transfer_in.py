"""The receiving side of a promotion: rows of a SQLite ledger are inserted batch by batch.

Each batch commits together with the key of its last row, so a promotion that was killed continues
after the last committed batch. No server starts until every row is here and was verified against
the file.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ackbox.errors import StoreError
from ackbox.model import to_text
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.transfer import (
    KEY_WIDTHS,
    START_KEYS,
    TABLES,
    Batch,
    Row,
    RowKey,
    Sequences,
    canonical_json,
    checksum,
)

_ELSEWHERE = "Name another ACKBOX_DATABASE_SCHEMA, or an empty database."
_ERRORS = TABLES["events"].index("errors")


class Progress(Struct, frozen=True):
    """The table being transferred, the key of its last committed row, and all rows so far."""

    table: str
    last_key: RowKey
    rows: int


async def assert_no_unfinished_promotion(database: Database) -> None:
    """Raise `StoreError` for a ledger that was transferred in part: some idempotency keys would be
    unknown, and lanes out of order."""
    rows = await database.fetch("promotion")
    if rows and rows[0]["finished_at"] is None:
        raise StoreError(
            f"The schema {database.address.schema} holds an unfinished promotion of "
            f"{rows[0]['file']}. Run `ackbox promote {rows[0]['file']}` again to finish it, or "
            "set another ACKBOX_DATABASE_SCHEMA or ACKBOX_DATABASE_URL."
        )


async def begin(database: Database, file: str, identity: str) -> Progress:
    """Begin or resume a promotion, and return how far it is. Raise `StoreError` if the database
    holds another ledger, or other processes use it.

    A starting server waits for the lock taken here. Either that server is already connected and
    is seen here, or it will see that a promotion has begun.
    """
    async with database.transaction() as session:
        await session.fetch("lock_promotion")
        await _assert_alone(session)
        promotion = await session.fetch_one("promotion")
        if promotion is not None:
            return _resume(promotion, identity, database.address.schema)
        ((has_rows,),) = await session.fetch("has_rows")
        if has_rows:
            raise StoreError(
                f"The schema {database.address.schema} holds a ledger already, with events of its "
                f"own. {_ELSEWHERE}"
            )
        table = next(iter(TABLES))
        progress = Progress(table, START_KEYS[table], 0)
        await session.fetch("begin_promotion", file=file, identity=identity, **_columns(progress))
        return progress


async def insert_batch(database: Database, batch: Batch, progress: Progress) -> Progress:
    """Insert the batch and return the new progress. Raise `StoreError` if another promotion made
    progress in the meantime."""
    advanced = Progress(batch.table, batch.last, progress.rows + len(batch.rows))
    previous = _columns(progress)
    async with database.transaction() as session:
        if not await session.fetch(
            "advance_promotion",
            **_columns(advanced),
            rows=advanced.rows,
            previous_table=previous["current_table"],
            previous_key=previous["last_key"],
        ):
            raise StoreError("Another promotion into this schema is running. Let it finish.")
        columns = zip(*batch.rows, strict=True)
        values = dict(zip(TABLES[batch.table], map(list, columns), strict=True))
        await session.fetch(f"import_{batch.table}", **values)
        if batch.table == "events":
            await session.fetch("refresh_live_events", rows=values["ledger_id"])
    return advanced


async def analyze(database: Database) -> None:
    """Update the planner's statistics, which still describe empty tables."""
    await database.fetch("analyze")


async def target_checksum(database: Database, batch: Batch) -> bytes:
    """Return the checksum of the rows in this database that have the keys of this batch."""
    width = KEY_WIDTHS[batch.table]
    keys = zip(*(row[:width] for row in batch.rows), strict=True)
    parameters = dict(zip(TABLES[batch.table], map(list, keys), strict=False))
    rows = await database.fetch(f"imported_{batch.table}", **parameters)
    return checksum(batch.table, [_plain(batch.table, tuple(row)) for row in rows])


async def counts(database: Database) -> dict[str, int]:
    return dict(map(tuple, await database.fetch("imported_counts")))


async def status_counts(database: Database) -> dict[str, int]:
    return dict(map(tuple, await database.fetch("status_counts")))


async def finish(database: Database, sequences: Sequences) -> None:
    """Set the sequences and mark the promotion as finished, in one commit: without the sequences,
    new events would get numbers that are already in use."""
    async with database.transaction() as session:
        await session.fetch("set_sequences", **asdict(sequences))
        if not await session.fetch("finish_promotion"):
            raise StoreError("Another promotion in this schema was finished meanwhile.")


async def _assert_alone(session: Session) -> None:
    server = replace(session.address, application="ackbox").application_name
    ((connections,),) = await session.fetch("other_processes", application=server)
    if connections:
        raise StoreError(
            f"Other ackbox processes use the ledger ({connections} connections). Stop them "
            "first; start them again when the promotion is finished."
        )


def _resume(promotion: Any, identity: str, schema: str) -> Progress:
    if promotion["finished_at"] is not None:
        raise StoreError(
            f"A promotion of {promotion['file']} to the schema {schema} was finished at "
            f"{to_text(promotion['finished_at'])}: it holds a ledger already. {_ELSEWHERE}"
        )
    if promotion["identity"] != identity:
        raise StoreError(
            f"The schema {schema} holds an unfinished promotion of {promotion['file']}, and this "
            f"is another file, or it was written to since. {_ELSEWHERE}"
        )
    last_key = tuple(msgspec.json.decode(promotion["last_key"], type=list[Any]))
    return Progress(promotion["current_table"], last_key, promotion["rows"])


def _columns(progress: Progress) -> Mapping[str, str]:
    last_key = msgspec.json.encode(progress.last_key).decode()
    return {"current_table": progress.table, "last_key": last_key}


def _plain(table: str, row: Row) -> Row:
    plain = [to_text(value) if isinstance(value, datetime) else value for value in row]
    if table == "events":
        plain[_ERRORS] = canonical_json(plain[_ERRORS])
    return tuple(plain)
