"""`inbox.read`: a user's own question, on a connection that cannot write."""

from collections.abc import Mapping
from typing import Any

import apsw

from ackbox.errors import InvalidStatement

_STEERING = frozenset(
    (
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_TRANSACTION,  # a read left open would let the log grow
    )
)
_THEIR_FAULT = (
    apsw.AuthError,
    apsw.BindingsError,
    apsw.ExecutionCompleteError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.ReadOnlyError,
    apsw.SQLError,
    apsw.TooBigError,
)


def ask(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    connection.authorizer = _authorize
    try:
        return _rows(connection, sql, params)
    except KeyError as error:
        raise InvalidStatement(f"inbox.read was given no value for :{error.args[0]}.") from error
    except (*_THEIR_FAULT, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidStatement(f"inbox.read takes one SELECT: {reason}.") from error
    finally:
        connection.authorizer = None


def _rows(
    connection: apsw.Connection, sql: str, params: Mapping[str, object]
) -> list[dict[str, Any]]:
    if not sql.strip():
        raise TypeError("there is none")
    cursor = connection.execute(sql, dict(params), can_cache=False)
    found: list[dict[str, Any]] = []
    for row in cursor:  # of a question without rows SQLite does not say the columns
        names = [column[0] for column in cursor.get_description()]
        found.append(dict(zip(names, row, strict=True)))
    return found


def _authorize(
    action: int, _first: str | None, _second: str | None, _db: str | None, _via: str | None
) -> int:
    return apsw.SQLITE_DENY if action in _STEERING else apsw.SQLITE_OK
