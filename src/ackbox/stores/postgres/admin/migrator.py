"""Migrations of the ledger, applied once however many instances start at the same time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ackbox.errors import SchemaMismatch, SettingError, StoreError, Unavailable
from ackbox.stores import migrations
from ackbox.stores.migrations import Migration, insert_migration
from ackbox.stores.postgres.admin import rights
from ackbox.stores.postgres.database import Database, Session
from ackbox.stores.postgres.failures import is_undeclared_pooling
from ackbox.stores.postgres.statements import in_schema, lock_key

# `CREATE SCHEMA IF NOT EXISTS` needs the right to create one, even if it exists.
_SCHEMA = """DO $$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $$"""
_TABLE = "{schema}.schema_migrations"
_MIGRATIONS_TABLE = """CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
_FIRST_VERSION = 140000


def all_migrations() -> list[Migration]:
    return migrations.load_migrations("ackbox.stores.postgres.migrations")


def schema_sql(schema: str) -> str:
    """Return the SQL that creates an empty ledger."""
    head = f"{_SCHEMA};\n\n{_MIGRATIONS_TABLE}"
    return in_schema(migrations.as_sql(head, all_migrations(), table=_TABLE), schema)


async def migrate(database: Database) -> list[Migration]:
    """Apply the missing migrations, each in one transaction with its entry in the table of applied
    migrations. Other instances that start at the same time wait for the lock. Raise `SettingError`
    before any change if users' tables would have no schema."""
    with _reporting_proxies():
        await rights.assert_users_path(database)
    done: list[Migration] = []
    while True:
        with _reporting_proxies():
            step = await _migrate_once(database)
        if step is None:
            return done
        done.append(step)


async def _migrate_once(database: Database) -> Migration | None:
    schema = database.address.schema
    async with database.transaction() as session:
        await session.execute_raw("SET LOCAL statement_timeout = 0")
        await session.fetch("lock", key=lock_key(schema, "migrate"))
        await rights.assert_usable(session)
        missing = await _missing(session)
        if not missing:
            return None
        for sql in (_SCHEMA, _MIGRATIONS_TABLE, missing[0].sql):
            await session.execute_raw(in_schema(sql, schema))
        await _enter(session, missing[0])
    return missing[0]


async def pending(database: Database) -> list[Migration]:
    """Return the migrations that the ledger lacks."""
    async with database.reading() as session:
        await rights.assert_usable(session)
        return await _missing(session)


async def assert_current(database: Database) -> None:
    if missing := await pending(database):
        raise SchemaMismatch(
            f"The ledger lacks migration {missing[0].version:04} {missing[0].name}: the schema "
            f"{database.address.schema} is empty, or was written by an older ackbox. Run `ackbox "
            "migrate`, or set ACKBOX_DATABASE_SCHEMA if your ledger is in another schema."
        )


async def assert_durable(database: Database) -> None:
    """Raise `StoreError` if the server is too old, or cannot keep the promise of
    `DURABILITY=full`."""
    with _reporting_proxies():
        (row,) = await database.fetch("server_settings")
    if row["version"] < _FIRST_VERSION:
        raise StoreError(f"PostgreSQL 14 or later is needed, not {row['version'] // 10000}.")
    if row["encoding"] != "UTF8":
        raise StoreError(f"The database's encoding must be UTF8, not {row['encoding']}.")
    if database.address.durability == "full" and (row["fsync"], row["pages"]) != ("on", "on"):
        raise StoreError(
            "The server runs with fsync or full_page_writes off, so that a power cut loses events "
            "it has acknowledged. Switch both on, or set ACKBOX_DURABILITY=normal."
        )
    if database.address.durability == "full" and row["commits"] == "off":
        raise StoreError(
            "synchronous_commit is off in our sessions, although we set it: a proxy in between may "
            "drop settings. Behind a pooling proxy, set ACKBOX_DATABASE_POOLING=transaction."
        )


@contextmanager
def _reporting_proxies() -> Iterator[None]:
    """Raise `SettingError` for an unexpected pooling proxy: a misconfigured proxy fails the start,
    instead of making it wait."""
    try:
        yield
    except Unavailable as error:
        if is_undeclared_pooling(error.__cause__):
            raise SettingError(str(error)) from error
        raise


async def _missing(session: Session) -> list[Migration]:
    return migrations.missing(await _applied(session), all_migrations())


async def _applied(session: Session) -> dict[int, tuple[str, str]]:
    ((exists,),) = await session.fetch("has_migrations_table")
    if not exists:
        return {}
    rows = await session.fetch("applied_migrations")
    return {row["version"]: (row["name"], row["checksum"]) for row in rows}


async def _enter(session: Session, migration: Migration) -> None:
    entry = (migration.version, migration.name, migration.checksum)
    insert = in_schema(insert_migration(_TABLE), session.address.schema)
    await session.connection.execute(f"{insert} ($1, $2, $3)", *entry)


def names(steps: Sequence[Migration]) -> list[str]:
    return [f"{step.version:04} {step.name}" for step in steps]
