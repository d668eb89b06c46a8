"""`inbox.read`: a user's own SELECT, on a connection that cannot write."""

from collections.abc import Mapping
from typing import Any

import apsw

from ackbox.errors import InvalidStatement

_REFUSED = frozenset(
    (
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_TRANSACTION,  # an open read would let the log grow
    )
)
_USER_ERRORS = (
    apsw.AuthError,
    apsw.BindingsError,
    apsw.ExecutionCompleteError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.ReadOnlyError,
    apsw.SQLError,
    apsw.TooBigError,
)


def run_query(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    connection.authorizer = _authorize
    try:
        return _rows(connection, sql, params)
    except KeyError as error:
        raise InvalidStatement(
            f"inbox.read got no value for the parameter :{error.args[0]}."
        ) from error
    except (*_USER_ERRORS, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidStatement(f"inbox.read takes one SELECT: {reason}.") from error
    finally:
        connection.authorizer = None


def _rows(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    if not sql.strip():
        raise TypeError("the statement is empty")
    cursor = connection.execute(sql, dict(params), can_cache=False)
    rows: list[dict[str, Any]] = []
    for row in cursor:  # without rows, SQLite does not tell the columns
        names = [column[0] for column in cursor.get_description()]
        rows.append(dict(zip(names, row, strict=True)))
    return rows


def _authorize(
    action: int, _first: str | None, _second: str | None, _db: str | None, _via: str | None
) -> int:
    return apsw.SQLITE_DENY if action in _REFUSED else apsw.SQLITE_OK
