"""`inbox.schema` and `inbox.migration`: the users' own tables, created and changed at the start
through the writer.

They are in the same file, so that the statements of a handler can share a commit with the event.
The tables of ackbox stay as the migrations made them.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import apsw

from ackbox.model import InboxMigration, to_text
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.effects import OWN_TABLES
from ackbox.stores.user_tables import find_pending, refuse, show_migration, show_schema

_WRITTEN_BY_DDL = frozenset(("sqlite_master", "sqlite_schema", "sqlite_sequence"))
_OWN = OWN_TABLES - _WRITTEN_BY_DDL
_REFUSED = frozenset(
    (
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_CREATE_TEMP_INDEX,
        apsw.SQLITE_CREATE_TEMP_TABLE,  # it would hide our table of the same name
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_VIEW,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_TRANSACTION,
    )
)
_RUN_BY_ALTER_TABLE = (apsw.SQLITE_PRAGMA, "quick_check")  # for a column with a constraint
_HARMLESS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION))
_ON_COLUMNS = frozenset((apsw.SQLITE_READ, apsw.SQLITE_UPDATE))
_NOT_YOURS = "it may create and change tables of your own, and nothing else"


def apply_schema(sql: Statements, ddl: Sequence[str]) -> None:
    """Run all statements or none. Raise a `StartupError` that names the refused statement."""
    for text in ddl:
        _run(sql, text, show_schema(text))


def apply_next_migration(
    sql: Statements, declared: Sequence[InboxMigration], now: datetime
) -> str | None:
    """Apply and record the first pending migration; return its name, or None if none is pending.
    Raise a `StartupError` that names the migration if it is refused."""
    for migration in find_pending(dict(sql.run("applied_inbox_migrations")), declared):
        _run(sql, migration.sql, show_migration(migration))
        entry = {"name": migration.name, "checksum": migration.checksum, "now": to_text(now)}
        sql.run("add_inbox_migration", **entry)
        return migration.name
    return None


def _run(sql: Statements, text: str, declared: str) -> None:
    """Run users' SQL, and check that ackbox's own tables are as they were."""
    last = sql.run("last_ledger_id").get
    _execute(sql.connection, text, declared)
    if _OWN & {name for (name,) in sql.run("referenced_tables")}:
        raise refuse(declared, "its foreign key would keep ackbox from deleting its own rows")
    if sql.run("last_ledger_id").get != last:
        raise refuse(declared, _NOT_YOURS)
    unresolved, _ = sql.connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)
    if unresolved:
        raise refuse(declared, "FOREIGN KEY constraint failed")


def _execute(connection: apsw.Connection, sql: str, declared: str) -> None:
    installed = connection.authorizer
    own_names: set[str] = set()
    connection.authorizer = partial(_authorize, own_names)
    try:
        connection.execute(sql, can_cache=False).fetchall()
    except apsw.AuthError:
        raise refuse(declared, _show_own(own_names) + _NOT_YOURS) from None
    except apsw.Error as error:
        raise refuse(declared, str(error)) from error
    finally:
        connection.authorizer = installed


def _show_own(names: set[str]) -> str:
    if not names:
        return ""
    return f"{min(names)} is the name of a table of ackbox, so give your table another name; "


def _authorize(
    own_names: set[str],
    action: int,
    first: str | None,
    second: str | None,
    _db: str | None,
    _via: str | None,
) -> int:
    """Allow or deny one action, and add the names of ackbox's own tables that it touches."""
    if action in _REFUSED and (action, first) != _RUN_BY_ALTER_TABLE:
        return apsw.SQLITE_DENY
    if action in _HARMLESS:
        return apsw.SQLITE_OK
    touched = {(first or "").lower()}
    if action not in _ON_COLUMNS:  # there `second` is a column
        touched.add((second or "").lower())
    own_names |= touched & _OWN
    return apsw.SQLITE_DENY if touched & _OWN else apsw.SQLITE_OK
