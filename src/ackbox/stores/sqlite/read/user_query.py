"""`inbox.read`: a user's own SELECT, on a connection that cannot write."""

from collections.abc import Mapping
from typing import Any

import apsw

from ackbox.errors import InvalidStatement
from ackbox.stores.named_statements import show_statement
from ackbox.stores.sqlite.user_sql import RUN_BY_FULL_TEXT_INDEX, check_user_query, few_parameters
from ackbox.stores.sqlite.user_values import bind, find_unstorable

_ALLOWED = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
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
    ValueError,  # a NUL in the SQL
)


def run_query(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    """Run the query. Raise an `InvalidStatement` that names the statement, and the parameter if one
    is to blame."""
    connection.authorizer = _authorize
    try:
        check_user_query(sql)
        with few_parameters(connection):
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
    action: int, first: str | None, _second: str | None, _db: str | None, _via: str | None
) -> int:
    """Allow only what a SELECT does: a temporary table would hide our table of the same name from
    later reads, and an open transaction would let the log grow."""
    is_allowed = action in _ALLOWED or (action, first) == RUN_BY_FULL_TEXT_INDEX
    return apsw.SQLITE_OK if is_allowed else apsw.SQLITE_DENY
