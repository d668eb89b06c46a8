"""`inbox.schema` and `inbox.migration`: the users' own tables, changed by one instance at a time.

Instances that start together wait for the lock of ackbox's own migrations. A change to a large
table takes long, so these statements have a connection of their own with a long time-out.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from ackbox.errors import InvalidStatement
from ackbox.model import InboxMigration
from ackbox.stores.postgres.database import Address, Database, Session
from ackbox.stores.postgres.failures import is_connection_lost
from ackbox.stores.postgres.statements import lock_key
from ackbox.stores.postgres.user_sql import check_schema
from ackbox.stores.user_tables import find_pending, refuse, show_migration, show_schema

_SECONDS = 3600.0
_DENIED_SCHEMA = re.compile(r"for schema (\S+)$")


async def apply_schema(address: Address, ddl: Sequence[str]) -> None:
    """Run all statements or none. Raise a `StartupError` that names the refused statement."""
    async with _patient_database(address) as database, _locked(database) as session:
        for sql in ddl:
            await _run(session, sql, "inbox.schema", show_schema(sql))


async def apply_migrations(address: Address, declared: Sequence[InboxMigration]) -> list[str]:
    """Apply the pending migrations, each in one transaction with its record."""
    applied: list[str] = []
    async with _patient_database(address) as database:
        while (name := await _apply_next(database, declared)) is not None:
            applied.append(name)
    return applied


async def _apply_next(database: Database, declared: Sequence[InboxMigration]) -> str | None:
    """Apply the first pending migration. Another instance may have applied it meanwhile."""
    async with _locked(database) as session:
        applied = dict(map(tuple, await session.fetch("applied_inbox_migrations")))
        for migration in find_pending(applied, declared):
            entry = {"name": migration.name, "checksum": migration.checksum}
            await _run(session, migration.sql, "inbox.migration", show_migration(migration))
            await session.fetch("add_inbox_migration", **entry)
            return migration.name
    return None


async def _run(session: Session, sql: str, caller: str, declared: str) -> None:
    """Run users' SQL, and check deferred constraints before the commit. A deadlock and a lost
    connection are not the fault of the SQL: the caller may try again."""
    role = (await session.fetch_one("users_path"))["role"]
    try:
        check_schema(sql, session.address.schema, caller)
        # In one call: the driver cannot run SQL that is nothing but a comment.
        await session.execute_raw(f"{sql}\n; SET CONSTRAINTS ALL IMMEDIATE")
    except InvalidStatement as error:
        raise refuse(declared, str(error)) from None
    except asyncpg.InsufficientPrivilegeError as error:
        raise refuse(declared, f"{error.args[0]}{_grant(str(error.args[0]), role)}") from error
    except asyncpg.PostgresError as error:
        if is_connection_lost(error) or isinstance(error, asyncpg.TransactionRollbackError):
            raise
        raise refuse(declared, str(error.args[0])) from error  # DETAIL would quote rows


def _grant(message: str, role: str) -> str:
    """Return the remedy if the role may not create tables in a schema."""
    if (denied := _DENIED_SCHEMA.search(message)) is None:
        return ""
    return f". Run as an administrator: GRANT USAGE, CREATE ON SCHEMA {denied[1]} TO {role}"


@asynccontextmanager
async def _patient_database(address: Address) -> AsyncIterator[Database]:
    database = Database(address, size=1, seconds=_SECONDS)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def _locked(database: Database) -> AsyncIterator[Session]:
    """Begin a transaction for users' SQL that no other instance runs at the same time."""
    async with database.users_transaction() as session:
        await session.execute_raw("SET LOCAL statement_timeout = 0")
        await session.fetch("lock", key=lock_key(database.address.schema, "migrate"))
        yield session
