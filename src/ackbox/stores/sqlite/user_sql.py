"""The rules for users' SQL that SQLite's authorizer does not know."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ackbox.errors import InvalidStatement
from ackbox.model import PARAMETERS_LIMIT

_OPAQUE = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
_WRITE = re.compile(r"\s*(?:WITH|INSERT|REPLACE|UPDATE|DELETE)\b", re.IGNORECASE)
_QUERY = re.compile(r"\s*(?:SELECT|VALUES|WITH|EXPLAIN)\b", re.IGNORECASE)
_OR_ROLLBACK = re.compile(r"\bOR\s+ROLLBACK\b", re.IGNORECASE)
RUN_BY_FULL_TEXT_INDEX = (apsw.SQLITE_PRAGMA, "data_version")
"""What the authorizer must allow for users' fts5 tables: they ask whether others changed them."""
NOT_ALLOWED = "tx: only INSERT, UPDATE and DELETE on tables of your own are allowed."


@contextmanager
def few_parameters(connection: apsw.Connection) -> Iterator[None]:
    """Limit the parameters that a user's statement names: preparing it takes the square of their
    number. Our own statements have no such limit."""
    before = connection.limit(apsw.SQLITE_LIMIT_VARIABLE_NUMBER, PARAMETERS_LIMIT)
    try:
        yield
    finally:
        connection.limit(apsw.SQLITE_LIMIT_VARIABLE_NUMBER, before)


def check_effect(sql: str) -> None:
    plain = _OPAQUE.sub(" ", sql)
    if not _WRITE.match(plain):
        raise InvalidStatement(NOT_ALLOWED)
    if _OR_ROLLBACK.search(plain):  # it would roll back other operations too
        raise InvalidStatement("tx: OR ROLLBACK is not allowed; use OR ABORT.")


def check_user_query(sql: str) -> None:
    """Allow one SELECT. A second statement would run too."""
    plain = _OPAQUE.sub(" ", sql)
    if not _QUERY.match(plain):
        raise InvalidStatement("inbox.read takes one SELECT.")
    _, _, second = plain.partition(";")
    if second.strip():
        raise InvalidStatement("inbox.read: one statement at a time.")
