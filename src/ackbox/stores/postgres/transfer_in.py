"""A ledger that arrives from elsewhere: batch by batch, each committed with how far it is.

Whatever is killed when, the next attempt goes on behind the last batch that was committed. Until
all of it is here and was held against where it came from, no server starts.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ackbox.errors import StoreError
from ackbox.model import to_text
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.transfer import (
    FIRST,
    KEYS,
    TABLES,
    Batch,
    Row,
    RowKey,
    Sequences,
    checksum,
    shortest,
)

_ERRORS = TABLES["events"].index("errors")


class Progress(Struct, frozen=True):
    """Which table is being carried, up to which place, and how many rows are here in all."""

    carrying: str
    place: RowKey
    rows: int


async def assert_none_arriving(database: Database) -> None:
    """What is here by half must not be served: keys would be unknown, and lanes out of order."""
    rows = await database.fetch("promotion")
    if rows and rows[0]["finished_at"] is None:
        raise StoreError(
            f"The database holds an unfinished promotion of {rows[0]['file']}. Run "
            f"`ackbox promote {rows[0]['file']}` again to finish it, or name another DATABASE_URL."
        )


async def begin(database: Database, file: str, identity: str) -> Progress:
    """Where to go on; raises `StoreError` if this is no place for that ledger.

    The lock is one that a starting server waits for: either it is seen here, connected already, or
    it will see that a promotion has begun.
    """
    async with database.transaction() as session:
        await session.fetch("lock_promotion")
        await _assert_alone(session)
        found = await session.fetch_one("promotion")
        if found is not None:
            return _resume(found, identity)
        (holdings,) = await session.fetch("holdings")
        if holdings[0]:
            raise StoreError(
                "The database holds a ledger already, with events of its own. Name an empty one."
            )
        table = next(iter(TABLES))
        progress = Progress(table, FIRST[table], 0)
        await session.fetch("begin_promotion", file=file, identity=identity, **_noted(progress))
        return progress


async def take(database: Database, batch: Batch, progress: Progress) -> Progress:
    moved = replace(
        progress, carrying=batch.table, place=batch.last, rows=progress.rows + len(batch.rows)
    )
    was = {"was_carrying": progress.carrying, "was_place": _noted(progress)["place"]}
    async with database.transaction() as session:
        if not await session.fetch("move_promotion", **_noted(moved), rows=moved.rows, **was):
            raise StoreError("Another promotion goes on in this database. Let one of them finish.")
        columns = zip(*batch.rows, strict=True)
        values = dict(zip(TABLES[batch.table], map(list, columns), strict=True))
        await session.fetch(f"arrive_{batch.table}", **values)
        if batch.table == "events":
            await session.fetch("follow", rows=values["ledger_id"])
    return moved


async def analyze(database: Database) -> None:
    """Or the server would plan for the empty tables that it knew."""
    await database.fetch("analyze")


async def arrived_checksum(database: Database, batch: Batch) -> bytes:
    """Of the rows here that have the keys of this batch."""
    width = KEYS[batch.table]
    keys = zip(*(row[:width] for row in batch.rows), strict=True)
    asked = dict(zip(TABLES[batch.table], map(list, keys), strict=False))
    rows = await database.fetch(f"arrived_{batch.table}", **asked)
    return checksum(batch.table, [_plain(batch.table, tuple(row)) for row in rows])


async def counts(database: Database) -> dict[str, int]:
    return dict(map(tuple, await database.fetch("arrived_counts")))


async def status_counts(database: Database) -> dict[str, int]:
    return dict(map(tuple, await database.fetch("status_counts")))


async def finish(database: Database, sequences: Sequences) -> None:
    """The numbers first: an event that came after a finish without them would take one twice."""
    async with database.transaction() as session:
        await session.fetch(
            "set_numbers", ledger_id=sequences.ledger_id, audit_id=sequences.audit_id
        )
        if not await session.fetch("finish_promotion"):
            raise StoreError("Another promotion in this database was finished meanwhile.")


async def _assert_alone(session: Session) -> None:
    (others,) = await session.fetch("other_processes")
    if others[0]:
        raise StoreError(
            f"Other ackbox processes use the database ({others[0]} connections). Stop them first; "
            "start them again when the promotion is finished."
        )


def _resume(found: Any, identity: str) -> Progress:
    if found["finished_at"] is not None:
        raise StoreError(
            f"A promotion of {found['file']} to this database was finished at "
            f"{to_text(found['finished_at'])}: it holds a ledger already. Name an empty one."
        )
    if found["identity"] != identity:
        raise StoreError(
            f"The database holds an unfinished promotion of {found['file']}, and this is another "
            "file, or it was written to since. Name an empty database to begin anew."
        )
    place = tuple(msgspec.json.decode(found["place"], type=list[Any]))
    return Progress(found["carrying"], place, found["rows"])


def _noted(progress: Progress) -> Mapping[str, str]:
    place = msgspec.json.encode(progress.place).decode()
    return {"carrying": progress.carrying, "place": place}


def _plain(table: str, row: Row) -> Row:
    plain = [to_text(value) if isinstance(value, datetime) else value for value in row]
    if table == "events":
        plain[_ERRORS] = shortest(plain[_ERRORS])
    return tuple(plain)
