"""The schema, as numbered plain SQL that only ever adds, and the runner that applies it."""

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

import apsw
from msgspec import Struct

from ackbox.errors import SchemaMismatch

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_BOOKS = """CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
) STRICT"""
_ENTER = "INSERT INTO schema_migrations (version, name, checksum) VALUES"


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


def all_migrations() -> list[Migration]:
    found = [
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in files(__package__).iterdir()
        if (match := _FILE.match(file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


def as_sql(migrations: Sequence[Migration]) -> str:
    """What `apply` does to an empty file, as text."""
    return "\n".join([f"{_BOOKS};\n", *map(_step, migrations)])


def pending(connection: apsw.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """What is still to apply; raises if the file was made by a newer or an altered release."""
    applied = _applied(connection)
    known = {migration.version: migration for migration in migrations}
    for version, (name, checksum) in applied.items():
        if version not in known:
            raise SchemaMismatch(
                f"The ledger has migration {version:04} {name}, which this release does not know: "
                "it was written by a newer ackbox. Start that release, or restore a backup."
            )
        if known[version].checksum != checksum:
            raise SchemaMismatch(
                f"Migration {version:04} {name} is not the one that made this ledger (its checksum "
                "differs). Install the release that made it; never edit an applied migration."
            )
    return [migration for migration in migrations if migration.version not in applied]


def apply(connection: apsw.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Apply what is pending, each in one transaction with its own entry in the books."""
    connection.execute(_BOOKS)
    missing = pending(connection, migrations)
    for migration in missing:
        with connection:
            connection.execute(migration.sql)
            connection.execute(
                f"{_ENTER} (?, ?, ?)",
                (migration.version, migration.name, migration.checksum),
            )
    return missing


def _step(migration: Migration) -> str:
    title = f"{migration.version:04} {migration.name}"
    entry = f"({migration.version}, '{migration.name}', '{migration.checksum}')"
    return "\n".join((f"-- {title}", "BEGIN;", migration.sql, f"{_ENTER} {entry};", "COMMIT;", ""))


def _applied(connection: apsw.Connection) -> dict[int, tuple[str, str]]:
    if not connection.table_exists(None, "schema_migrations"):
        return {}
    rows = connection.execute(
        "SELECT version, name, checksum FROM schema_migrations ORDER BY version"
    )
    return {version: (name, checksum) for version, name, checksum in rows}
