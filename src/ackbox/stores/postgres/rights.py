"""Whether the user of `DATABASE_URL` may do what a ledger needs, and what to grant if not."""

from ackbox.errors import StoreError
from ackbox.stores.postgres.database import Database
from ackbox.stores.postgres.user_sql import OWN_TABLES

_WRITTEN = sorted(OWN_TABLES - {"schema_migrations"})
_SHOWN = 3


async def assert_writable(database: Database) -> None:
    """The rights are asked for, all of them; then a write is tried, since a standby, or a database
    that is read-only, refuses it to whoever has them."""
    if (missing := await find_missing(database)) is not None:
        raise StoreError(" ".join(missing))
    await database.prove_writable()


async def find_hindrance(database: Database) -> tuple[str, str] | None:
    """What keeps a ledger from being made here, and what to do; None if nothing does."""
    (row,) = await database.fetch("building_ground", tables=sorted(OWN_TABLES))
    role, schema = row["role"], row["schema"]
    if not row["may_build"]:
        detail = f"The user {role} may not make tables in the schema {schema}."
        return detail, f"GRANT CREATE ON SCHEMA {schema} TO {role}, or let it own the database."
    if row["taken"]:
        detail = f"There is no ledger, but tables under its names: {', '.join(row['taken'])}."
        return detail, "Name another database, or put another schema first in the search_path."
    return None


async def find_missing(database: Database) -> tuple[str, str] | None:
    """Which, and what to do; None when there are none."""
    rows = await database.fetch("missing_rights", tables=_WRITTEN)
    if not rows:
        return None
    names = [row["name"] for row in rows]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    role, schema = rows[0]["role"], rows[0]["schema"]
    detail = f"The user {role} lacks rights on {', '.join(names[:_SHOWN])}{more}."
    remedy = (
        "Let it own the ledger, or run as its owner: "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
        f"GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )
    return detail, remedy
