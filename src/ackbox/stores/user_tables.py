"""Decisions about users' own tables that both stores share."""

from collections.abc import Mapping, Sequence

from ackbox.errors import StartupError
from ackbox.model import InboxMigration
from ackbox.text import one_line

_SHOWN = 60


def find_pending(
    applied: Mapping[str, str], declared: Sequence[InboxMigration]
) -> list[InboxMigration]:
    """Return the migrations that are not applied yet, in the order of their declaration. `applied`
    maps names to checksums; it may have more, because an application may drop old migrations."""
    for migration in declared:
        if applied.get(migration.name, migration.checksum) != migration.checksum:
            raise StartupError(
                f"{show_migration(migration)} was applied with other SQL: its checksum differs. "
                "Restore its SQL, and make the change in a new migration with another name."
            )
    return [migration for migration in declared if migration.name not in applied]


def show_schema(sql: str) -> str:
    return f"inbox.schema({one_line(sql, _SHOWN)!r})"


def show_migration(migration: InboxMigration) -> str:
    return f"inbox.migration({migration.name!r})"


def refuse(declared: str, reason: str) -> StartupError:
    """Return the error for SQL that is not allowed or fails."""
    return StartupError(f"{declared} is refused: {' '.join(reason.split()).rstrip('.')}.")
