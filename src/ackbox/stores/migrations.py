"""Migrations, for both stores: numbered files of plain SQL that only add to the schema."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files

from msgspec import Struct

from ackbox.errors import SchemaMismatch

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_TABLE = "schema_migrations"


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


Applied = Mapping[int, tuple[str, str]]
"""The table of applied migrations: version to name and checksum."""


def load_migrations(package: str) -> list[Migration]:
    migrations = [
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in files(package).iterdir()
        if (match := _FILE.match(file.name))
    ]
    return sorted(migrations, key=lambda migration: migration.version)


def as_sql(head: str, migrations: Sequence[Migration], *, table: str = _TABLE) -> str:
    """Return the SQL that creates the schema in an empty database. `head` creates `table`."""
    return "\n".join([f"{head};\n", *(_step(migration, table) for migration in migrations)])


def insert_migration(table: str = _TABLE) -> str:
    """Return the start of the statement that notes a migration as applied."""
    return f"INSERT INTO {table} (version, name, checksum) VALUES"


def missing(applied: Applied, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that are not applied yet. Raise `SchemaMismatch` if a newer or an
    altered release made the ledger."""
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


def _step(migration: Migration, table: str) -> str:
    title = f"{migration.version:04} {migration.name}"
    entry = f"({migration.version}, '{migration.name}', '{migration.checksum}')"
    insert = f"{insert_migration(table)} {entry};"
    return "\n".join((f"-- {title}", "BEGIN;", migration.sql, insert, "COMMIT;", ""))
