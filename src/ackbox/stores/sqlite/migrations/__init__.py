"""The schema, as numbered plain SQL that only ever adds, and the runner that applies it."""

from collections.abc import Sequence

import apsw

from ackbox.stores import migrations
from ackbox.stores.migrations import ENTER, Migration

__all__ = ["Migration", "all_migrations", "apply", "as_sql", "pending"]

_BOOKS = """CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT"""


def all_migrations() -> list[Migration]:
    return migrations.load_migrations(__name__)


def as_sql(steps: Sequence[Migration]) -> str:
    """What `apply` does to an empty file, as text."""
    return migrations.as_sql(_BOOKS, steps)


def pending(connection: apsw.Connection, steps: Sequence[Migration]) -> list[Migration]:
    """What is still to apply; raises if the file was made by a newer or an altered release."""
    return migrations.missing(_applied(connection), steps)


def apply(connection: apsw.Connection, steps: Sequence[Migration]) -> list[Migration]:
    """Apply what is pending, each in one transaction with its own entry in the books."""
    connection.execute(_BOOKS)
    missing = pending(connection, steps)
    for migration in missing:
        with connection:
            connection.execute(migration.sql)
            connection.execute(
                f"{ENTER} (?, ?, ?)",
                (migration.version, migration.name, migration.checksum),
            )
    return missing


def _applied(connection: apsw.Connection) -> dict[int, tuple[str, str]]:
    if not connection.table_exists(None, "schema_migrations"):
        return {}
    rows = connection.execute(
        "SELECT version, name, checksum FROM schema_migrations ORDER BY version"
    )
    return {version: (name, checksum) for version, name, checksum in rows}
