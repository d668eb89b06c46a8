"""A ledger of one SQLite file carried into a PostgreSQL database, and held against it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from ackbox.app.postgres import PostgresBackend
from ackbox.config import Settings
from ackbox.errors import StoreError
from ackbox.stores.postgres import transfer_in
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.migrator import assert_durable, migrate
from ackbox.stores.postgres.transfer_in import Progress
from ackbox.stores.sqlite.transfer_out import SourceLedger, open_source_ledger, source_checksum
from ackbox.stores.transfer import FIRST, TABLES

Report = Callable[[str, int, int], None]
"""What is being done, to how many rows so far, of how many."""

_SECONDS = 600.0
_AMISS = (
    "Something else wrote to one of them. The file is as it was: name an empty database, and begin "
    "anew."
)


class Promoted(Struct, frozen=True):
    """How many rows of each table were carried, where to, and the users' tables that were not."""

    target: str
    counts: Mapping[str, int]
    left_behind: list[str]


async def promote_ledger(settings: Settings, file: Path, url: str, report: Report) -> Promoted:
    """Goes on where one that was killed stopped; raises `StoreError` unless the database is empty
    or holds an unfinished promotion of this same file."""
    pooled = settings.database_pooling == "transaction"
    address = Address(url, settings.durability, pooled=pooled, application="ackbox promote")
    database = Database(address, size=1, seconds=_SECONDS)
    try:
        with open_source_ledger(file) as ledger:
            await assert_durable(database)
            await migrate(database)
            await _carry(ledger, database, str(file), report)
            await transfer_in.analyze(database)
            await _verify(ledger, database, report)
            await transfer_in.finish(database, ledger.sequences())
            target = PostgresBackend(settings, url).name
            return Promoted(target, ledger.counts(), ledger.own_tables())
    finally:
        await database.close()


async def _carry(ledger: SourceLedger, database: Database, file: str, report: Report) -> None:
    progress = await transfer_in.begin(database, file, ledger.identity())
    total = sum(ledger.counts().values())
    names = list(TABLES)
    for table in names[names.index(progress.carrying) :]:
        for batch in ledger.batches(table, _start(table, progress)):
            progress = await transfer_in.take(database, batch, progress)
            report("carried", progress.rows, total)


def _start(table: str, progress: Progress) -> tuple[object, ...]:
    return progress.place if table == progress.carrying else FIRST[table]


async def _verify(ledger: SourceLedger, database: Database, report: Report) -> None:
    """Every row, on both sides; then that there are no others."""
    counts = ledger.counts()
    rows, total = 0, sum(counts.values())
    for table, first in FIRST.items():
        for batch in ledger.batches(table, first):
            if source_checksum(batch) != await transfer_in.arrived_checksum(database, batch):
                raise StoreError(
                    f"{table} up to {batch.last[-1]} arrived other than sent. {_AMISS}"
                )
            rows += len(batch.rows)
            report("verified", rows, total)
    _assert_equal("rows", counts, await transfer_in.counts(database))
    _assert_equal(
        "events by status", ledger.status_counts(), await transfer_in.status_counts(database)
    )


def _assert_equal(what: str, sent: Mapping[str, int], found: Mapping[str, int]) -> None:
    for name, count in sent.items():
        if (there := found.get(name, 0)) != count:
            raise StoreError(f"{what}: {count} {name} were sent, {there} are there. {_AMISS}")
