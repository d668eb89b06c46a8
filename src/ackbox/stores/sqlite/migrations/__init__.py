"""The schema as numbered SQL files that only add, and the code that applies them."""

import re
from collections.abc import Sequence
from contextlib import closing

import apsw

from ackbox.errors import SchemaMismatch
from ackbox.stores import migrations
from ackbox.stores.migrations import Migration, insert_migration

__all__ = ["Migration", "all_migrations", "apply", "as_sql", "is_exact", "pending"]

_MIGRATIONS_TABLE = """CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT"""

_CREATED = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


def all_migrations() -> list[Migration]:
    return migrations.load_migrations(__name__)


def as_sql(steps: Sequence[Migration]) -> str:
    """Return as text the SQL that `apply` runs on an empty file."""
    return migrations.as_sql(_MIGRATIONS_TABLE, steps)


def pending(connection: apsw.Connection, steps: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that are not applied yet. Raise if a newer or altered release made the
    file."""
    return migrations.missing(_applied(connection), steps)


def apply(connection: apsw.Connection, steps: Sequence[Migration]) -> list[Migration]:
    """Apply the pending migrations, each in one transaction with its row in `schema_migrations`."""
    connection.execute(_MIGRATIONS_TABLE)
    missing = pending(connection, steps)
    for migration in missing:
        _assert_no_name_taken(connection, migration)
        with connection:
            connection.execute(migration.sql)
            connection.execute(
                f"{insert_migration()} (?, ?, ?)",
                (migration.version, migration.name, migration.checksum),
            )
    return missing


def _assert_no_name_taken(connection: apsw.Connection, migration: Migration) -> None:
    """Raise if a table of the user's has the name of a table that the migration creates: on SQLite,
    users' tables are in the same file."""
    names = {name.lower() for name in _CREATED.findall(migration.sql)}
    taken = [str(row[2]) for row in _objects(connection) if str(row[2]).lower() in names]
    if taken:
        name = taken[0]
        raise SchemaMismatch(
            f"The ledger holds a table of your own named {name}, and this release of ackbox needs "
            f"the name for itself. Rename your table, here and in your code: ALTER TABLE {name} "
            f"RENAME TO my_{name}. Nothing was changed."
        )


def is_exact(connection: apsw.Connection) -> bool:
    """Return whether ackbox's own tables, indexes and triggers are exactly those of the migrations.
    Other tables belong to the users."""
    steps = all_migrations()
    with closing(apsw.Connection(":memory:")) as fresh:
        apply(fresh, steps)
        expected = _objects(fresh)
    tables = {table for _, _, table, _ in expected}
    actual = {item for item in _objects(connection) if item[2] in tables}
    try:
        return actual == expected and not pending(connection, steps)
    except SchemaMismatch:
        return False


def _objects(connection: apsw.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _applied(connection: apsw.Connection) -> dict[int, tuple[str, str]]:
    if not connection.table_exists(None, "schema_migrations"):
        return {}
    rows = connection.execute(
        "SELECT version, name, checksum FROM schema_migrations ORDER BY version"
    )
    return {version: (name, checksum) for version, name, checksum in rows}
