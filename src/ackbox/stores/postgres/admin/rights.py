"""The rights that a ledger needs, and what to grant if the user of `DATABASE_URL` lacks one."""

from typing import Any

from ackbox.errors import SettingError, StoreError
from ackbox.stores.postgres.database import Database, Session

OWN_TABLES = frozenset(
    (
        "audit",
        "cursors",
        "events",
        "fingerprints",
        "inbox_migrations",
        "lanes",
        "live_events",
        "promotion",
        "quarantine",
        "quarantine_usage",
        "schema_migrations",
        "status_counts",
        "submissions",
        "tombstones",
        "write_probe",
    )
)
OWN_FUNCTIONS = frozenset(
    ("assert_name", "count_move", "enqueue", "is_name", "parse_json", "refresh_live_events")
)
_MIGRATIONS = "schema_migrations"
_WRITTEN = sorted(OWN_TABLES - {_MIGRATIONS})
_SHOWN = 3


async def assert_usable(session: Session) -> None:
    """Raise `StoreError` if the schema is missing and the role may not create it, if the role may
    not use it, or if the schema was renamed."""
    row = await session.fetch_one("schema_state", tables=[_MIGRATIONS])
    if (problem := _missing_schema(row)) is not None:
        raise StoreError(" ".join(problem))
    if (renamed := await session.fetch_one("former_name")) is not None:
        former, schema = renamed["former"], row["schema"]
        raise StoreError(
            f"The schema {schema} was renamed, but its functions still name the tables of {former}."
            f" Rename it back: ALTER SCHEMA {schema} RENAME TO {former}"
        )


async def assert_users_path(database: Database) -> None:
    """Raise `SettingError` if users' SQL would have no schema for its tables."""
    if (problem := await find_empty_path(database)) is not None:
        raise SettingError(" ".join(problem))


async def assert_writable(database: Database) -> None:
    """Check all rights, and then try a write: a standby or a read-only database refuses it even to
    a role that has the rights."""
    if (missing := await find_missing(database)) is not None:
        raise StoreError(" ".join(missing))
    await database.prove_writable()


async def find_empty_path(database: Database) -> tuple[str, str] | None:
    """Return why users' SQL has no schema for its tables, and the remedy; None if it has one."""
    async with database.users_transaction() as session:
        row = await session.fetch_one("users_path")
    if row["schemas"]:
        return None
    role, schema = row["role"], database.address.schema
    detail = (
        f"Your own tables have no schema: the search_path of the role {role} names no schema that "
        f"exists and that it may use, apart from {schema}, which is ackbox's own."
    )
    if schema == "public":
        return detail, "Name another ACKBOX_DATABASE_SCHEMA, and leave public to your own tables."
    return detail, f"Run ALTER ROLE {role} SET search_path = public, or name another schema there."


async def find_hindrance(database: Database) -> tuple[str, str] | None:
    """Return what keeps a ledger from being created in the schema, and the remedy; None if nothing
    does."""
    (row,) = await database.fetch("schema_state", tables=sorted(OWN_TABLES))
    if (problem := _missing_schema(row)) is not None:
        return problem
    if row["present"] and not row["may_create_tables"]:
        detail = f"The user {row['role']} may not create tables in the schema {row['schema']}."
        return detail, _ownership(row)
    if row["taken"]:
        detail = f"There is no ledger, but tables under its names: {', '.join(row['taken'])}."
        return (
            detail,
            "Set ACKBOX_DATABASE_SCHEMA to another name: ackbox needs a schema of its own.",
        )
    return None


async def find_missing(database: Database) -> tuple[str, str] | None:
    """Return which rights are missing, and the remedy; None if the role has all of them."""
    rows = await database.fetch("missing_rights", tables=_WRITTEN)
    if not rows:
        return None
    names = [row["name"] for row in rows]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    detail = f"The user {rows[0]['role']} lacks rights on {', '.join(names[:_SHOWN])}{more}."
    return detail, _grants(rows[0])


def _missing_schema(row: Any) -> tuple[str, str] | None:
    role, schema = row["role"], row["schema"]
    if not row["present"] and not row["may_create_schema"]:
        detail = (
            f"The database {row['database']} has no schema {schema}, and the user {role} may not "
            "create it."
        )
        return detail, f"Run as an administrator: CREATE SCHEMA {schema} AUTHORIZATION {role}"
    if row["present"] and not row["may_use"]:
        detail = f"The user {role} may not use the schema {schema}."
        return detail, _grants(row) if _MIGRATIONS in row["taken"] else _ownership(row)
    return None


def _ownership(row: Any) -> str:
    """Return the remedy for a role that has to create the ledger's tables."""
    return f"Let it own the schema: ALTER SCHEMA {row['schema']} OWNER TO {row['role']}"


def _grants(row: Any) -> str:
    """Return the remedy for a role that uses a ledger of another owner."""
    role, schema = row["role"], row["schema"]
    return (
        f"Make this user the owner of the ledger, or let the present owner execute: "
        f"GRANT USAGE ON SCHEMA {schema} TO {role}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
        f"GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )
