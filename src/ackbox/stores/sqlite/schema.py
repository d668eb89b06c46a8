"""`inbox.schema`: the users' own tables, made at the start through the writer.

They live in the same file, so that what a handler writes can share a commit with the event. What is
ackbox's own stays as the migrations made it.
"""

from collections.abc import Sequence

import apsw

from ackbox.errors import SettingError
from ackbox.stores.sqlite.effects import OWN_TABLES
from ackbox.stores.sqlite.jobs import Operation
from ackbox.stores.sqlite.statements import Statements

_MIGRATIONS_TABLE = frozenset(
    {"sqlite_master", "sqlite_schema", "sqlite_sequence"}
)  # DDL writes there
_OWN = OWN_TABLES - _MIGRATIONS_TABLE
_REFUSED = frozenset(
    (
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_CREATE_TEMP_INDEX,
        apsw.SQLITE_CREATE_TEMP_TABLE,  # it would hide ours of the same name
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_VIEW,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_TRANSACTION,
    )
)
_READS = frozenset((apsw.SQLITE_READ, apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION))
_NOT_YOURS = "it may make and change tables of your own, and nothing else"
_SHOWN = 60


def apply_schema(ddl: Sequence[str]) -> Operation[None]:
    """All of it or nothing; raises a `SettingError` that names the statement."""

    def operation(connection: apsw.Connection) -> None:
        ours = Statements(connection)
        last = ours.run("last_ledger_id").get
        for sql in ddl:
            _run(connection, sql)
            if _OWN & {name for (name,) in ours.run("referenced_tables")}:
                raise _refusal(sql, "its rows would keep ackbox from deleting its own")
            if ours.run("last_ledger_id").get != last:
                raise _refusal(sql, _NOT_YOURS)

    return operation


def _run(connection: apsw.Connection, sql: str) -> None:
    installed = connection.authorizer
    connection.authorizer = _authorize
    try:
        connection.execute(sql, can_cache=False).fetchall()
    except apsw.AuthError:
        raise _refusal(sql, _NOT_YOURS) from None
    except apsw.Error as error:
        raise _refusal(sql, str(error)) from error
    finally:
        connection.authorizer = installed


def _authorize(
    action: int, first: str | None, second: str | None, _db: str | None, _via: str | None
) -> int:
    if action in _REFUSED:
        return apsw.SQLITE_DENY
    if action in _READS:
        return apsw.SQLITE_OK
    touched = {(first or "").lower()}
    if action != apsw.SQLITE_UPDATE:  # there it is a column
        touched.add((second or "").lower())
    return apsw.SQLITE_DENY if touched & _OWN else apsw.SQLITE_OK


def _refusal(sql: str, reason: str) -> SettingError:
    line = " ".join(sql.split())
    shown = line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."
    return SettingError(f"inbox.schema({shown!r}) is refused: {' '.join(reason.split())}.")
