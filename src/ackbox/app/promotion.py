"""`ackbox promote`: transfer a SQLite ledger into a PostgreSQL database, and verify the result."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from ackbox.app.postgres import PostgresBackend
from ackbox.config import Settings
from ackbox.errors import StoreError
from ackbox.stores.postgres.admin import transfer_in
from ackbox.stores.postgres.admin.migrator import assert_durable, migrate
from ackbox.stores.postgres.admin.transfer_in import Progress
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.sqlite.admin.transfer_out import (
    SourceLedger,
    open_source_ledger,
    source_checksum,
)
from ackbox.stores.transfer import START_KEYS, TABLES, RowKey

Report = Callable[[str, int, int], None]
"""Called with a verb ("transferred", "verified"), the rows done so far, and all rows."""

_SECONDS = 600.0
_MISMATCH = (
    "Something else wrote to the file or to the database. The file is unchanged by the promotion: "
    "begin anew with another ACKBOX_DATABASE_SCHEMA, or with an empty database."
)


class Promoted(Struct, frozen=True):
    """The result: the target, the rows transferred by table, and the tables of the users, which are
    not transferred."""

    target: str
    counts: Mapping[str, int]
    user_tables: list[str]


async def promote_ledger(settings: Settings, file: Path, url: str, report: Report) -> Promoted:
    """Transfer the file, or continue a promotion that was killed. Raise `StoreError` unless the
    schema is empty or holds an unfinished promotion of this same file."""
    address = Address(
        url,
        settings.durability,
        pooled=settings.database_pooling == "transaction",
        application="ackbox promote",
        schema=settings.database_schema,
    )
    database = Database(address, size=1, seconds=_SECONDS)
    try:
        with open_source_ledger(file) as ledger:
            await assert_durable(database)
            await migrate(database)
            await _transfer(ledger, database, str(file), report)
            await transfer_in.analyze(database)
            await _verify(ledger, database, report)
            await transfer_in.finish(database, ledger.sequences())
            target = PostgresBackend(settings, url).describe().name
            return Promoted(target, ledger.counts(), ledger.user_tables())
    finally:
        await database.close()


async def _transfer(ledger: SourceLedger, database: Database, file: str, report: Report) -> None:
    progress = await transfer_in.begin(database, file, ledger.identity())
    total = sum(ledger.counts().values())
    tables = list(TABLES)
    for table in tables[tables.index(progress.table) :]:
        for batch in ledger.batches(table, _start(table, progress)):
            progress = await transfer_in.insert_batch(database, batch, progress)
            report("transferred", progress.rows, total)


def _start(table: str, progress: Progress) -> RowKey:
    return progress.last_key if table == progress.table else START_KEYS[table]


async def _verify(ledger: SourceLedger, database: Database, report: Report) -> None:
    """Compare every row with its counterpart; then compare the counts, to find additional rows."""
    counts = ledger.counts()
    rows, total = 0, sum(counts.values())
    for table, first in START_KEYS.items():
        for batch in ledger.batches(table, first):
            if source_checksum(batch) != await transfer_in.target_checksum(database, batch):
                raise StoreError(
                    f"Rows of {table} up to {batch.last[-1]} differ from the file. {_MISMATCH}"
                )
            rows += len(batch.rows)
            report("verified", rows, total)
    _assert_equal("rows", counts, await transfer_in.counts(database))
    _assert_equal(
        "events by status", ledger.status_counts(), await transfer_in.status_counts(database)
    )


def _assert_equal(what: str, expected: Mapping[str, int], actual: Mapping[str, int]) -> None:
    for name, count in expected.items():
        if (present := actual.get(name, 0)) != count:
            raise StoreError(
                f"Number of {what}: the file has {count} {name}, the database has {present}. "
                f"{_MISMATCH}"
            )
