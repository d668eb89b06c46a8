"""`inbox.schema`: the users' own tables, created at the start through the writer.

They are in the same file, so that the statements of a handler can share a commit with the event.
The tables of ackbox stay as the migrations made them.
"""

from collections.abc import Sequence

import apsw

from ackbox.errors import StartupError
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.effects import OWN_TABLES
from ackbox.stores.sqlite.write.jobs import Operation

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
_READS = frozenset((apsw.SQLITE_READ, apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION))
_NOT_YOURS = "it may create and change tables of your own, and nothing else"
_SHOWN = 60


def apply_schema(ddl: Sequence[str]) -> Operation[None]:
    """Run all statements or none. Raise a `StartupError` that names the refused statement."""

    def operation(connection: apsw.Connection) -> None:
        statements = Statements(connection)
        last = statements.run("last_ledger_id").get
        for sql in ddl:
            _run(connection, sql)
            if _OWN & {name for (name,) in statements.run("referenced_tables")}:
                raise _refusal(sql, "its foreign key would keep ackbox from deleting its own rows")
            if statements.run("last_ledger_id").get != last:
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
    if action != apsw.SQLITE_UPDATE:  # there `second` is a column
        touched.add((second or "").lower())
    return apsw.SQLITE_DENY if touched & _OWN else apsw.SQLITE_OK


def _refusal(sql: str, reason: str) -> StartupError:
    line = " ".join(sql.split())
    shown = line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."
    return StartupError(f"inbox.schema({shown!r}) is refused: {' '.join(reason.split())}.")
