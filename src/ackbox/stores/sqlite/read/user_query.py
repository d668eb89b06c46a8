"""`inbox.read`: a user's own SELECT, on a connection that cannot write."""

from collections.abc import Mapping
from typing import Any

import apsw

from ackbox.errors import InvalidStatement
from ackbox.stores.named_statements import show_statement
from ackbox.stores.sqlite.user_values import bind, find_unstorable

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
    KeyError,  # a parameter that was not given
    OverflowError,
    TypeError,
    UnicodeError,
)


def run_query(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    """Run the query. Raise an `InvalidStatement` that names the statement, and the parameter if one
    is to blame."""
    connection.authorizer = _authorize
    try:
        return _rows(connection, sql, bind(params, "inbox.read"))
    except _USER_ERRORS as error:
        raise InvalidStatement(f"{_reason(error, params)}. {show_statement(sql)}") from error
    except InvalidStatement as error:
        raise InvalidStatement(f"{error} {show_statement(sql)}") from None
    finally:
        connection.authorizer = None


def _rows(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    if not sql.strip():
        raise TypeError("the statement is empty")
    cursor = connection.execute(sql, params, can_cache=False)
    rows: list[dict[str, Any]] = []
    for row in cursor:  # without rows, SQLite does not tell the columns
        names = [column[0] for column in cursor.get_description()]
        rows.append(dict(zip(names, row, strict=True)))
    return rows


def _reason(error: BaseException, params: Mapping[str, object]) -> str:
    if isinstance(error, KeyError):
        return f"inbox.read got no value for the parameter :{error.args[0]}"
    reason = " ".join(str(error).split())
    name = find_unstorable(bind(params, "inbox.read"))
    if name is not None and isinstance(error, TypeError | OverflowError | UnicodeError):
        return f"inbox.read cannot use the parameter :{name}: {reason}"
    return f"inbox.read takes one SELECT: {reason}"


def _authorize(
    action: int, _first: str | None, _second: str | None, _db: str | None, _via: str | None
) -> int:
    return apsw.SQLITE_DENY if action in _REFUSED else apsw.SQLITE_OK
