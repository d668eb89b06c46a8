"""The rules for users' SQL. They work on tokens, because PostgreSQL has no authorizer.

Users' triggers and functions are not checked. Users' tables may have the names of ours: ours are in
a schema of their own, which is not in the search path of users' SQL.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.admin.rights import OWN_FUNCTIONS, OWN_TABLES
from ackbox.stores.postgres.parameters import Token, tokens
from ackbox.text import find_unstorable

_SESSION_FUNCTIONS = frozenset(
    (
        *("set_config", "pg_settings", "pg_terminate_backend", "pg_cancel_backend", "dblink_exec"),
        # These locks outlive the transaction, on a connection that others get.
        *("pg_advisory_lock", "pg_advisory_lock_shared"),
        *("pg_try_advisory_lock", "pg_try_advisory_lock_shared"),
    )
)
_OWN = OWN_TABLES | OWN_FUNCTIONS
_END = Token("sign", ";")
_DDL = frozenset(
    {"create", "alter", "drop", "comment", "grant", "insert", "update", "delete", "with"}
)
_BEFORE_EXPRESSIONS = frozenset({"as", "using", "begin"})
_WRITES = frozenset({"insert", "update", "delete"})
_VERBS = _WRITES | {"select", "merge", "values", "table"}
_NOT_ALLOWED = "only INSERT, UPDATE and DELETE on tables of your own are allowed."


def check_effect(sql: str, schema: str) -> None:
    """Allow one INSERT, UPDATE or DELETE, also after WITH."""
    statement = list(_significant(sql, "tx"))
    for name in _qualified_names(statement, schema):
        if name in _OWN:
            raise InvalidStatement(f"tx: {schema}.{name} is ackbox's own, and tx may not name it.")
    _check_session_functions(statement, "tx")
    if _verb(statement) not in _WRITES:
        raise InvalidStatement(f"tx: {_NOT_ALLOWED}")


def check_schema(sql: str, schema: str, caller: str = "inbox.schema") -> None:
    """Allow DDL that leaves our schema and the session as they are."""
    for statement in _split(_significant(sql, caller, several=True)):
        _check_ddl(statement, schema, caller)


def check_user_query(sql: str) -> None:
    """Allow one SELECT. It may read our tables too: its transaction is read-only."""
    statement = list(_significant(sql, "inbox.read"))
    if _verb(statement) not in ("select", "values", "table"):
        raise InvalidStatement("inbox.read takes one SELECT.")


def _check_ddl(statement: list[Token], schema: str, caller: str) -> None:
    names = list(map(_name, statement))
    _check_session_functions(statement, caller)
    own = _OWN.intersection(_qualified_names(statement, schema))
    target = any(_qualified_names(_target(statement), schema))
    if own or target or schema in _named_schemas(statement):
        raise InvalidStatement(
            f"{caller}: the schema {schema} is ackbox's own, and your SQL may not name it."
        )
    if statement and names[0] not in _DDL:
        raise InvalidStatement(f"{caller}: {statement[0].text} is not allowed.")
    if names[:2] == ["drop", "owned"]:
        raise InvalidStatement(
            f"{caller}: DROP OWNED would delete ackbox's tables too: drop your own tables by name."
        )


def _split(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement. A function body between BEGIN ATOMIC and END contains
    statements of its own; there, END also ends a CASE."""
    statement: list[Token] = []
    depth = 0
    for token in chain(tokens, [_END]):
        word = token.text.lower()
        begins_body = word == "atomic" and statement and statement[-1].text.lower() == "begin"
        if begins_body or (depth and word == "case"):
            depth += 1
        elif depth and word == "end":
            depth -= 1
        if token == _END and not depth:
            yield statement
            statement = []
        else:
            statement.append(token)
    yield statement  # a body without its END


def _qualified_names(statement: list[Token], schema: str) -> Iterator[str]:
    """Yield each name that follows our schema and a dot. It may also be a column, of a table or
    an alias that is named like our schema."""
    for token, dot, name in zip(statement, statement[1:], statement[2:], strict=False):
        if dot.text == "." and _name(token) == schema:
            yield _name(name)


def _target(statement: list[Token]) -> list[Token]:
    """Return the part of a statement that names the objects it creates or changes. An expression
    is in parentheses, or after one of `_BEFORE_EXPRESSIONS`; there, a qualified name may be a
    column."""
    if not statement or _name(statement[0]) in _WRITES | {"with"}:
        into = [at for at, token in enumerate(statement) if token.text.lower() == "into"]
        return [token for at in into for token in statement[at + 1 : at + 4]]
    outer = _outside_parentheses(statement)
    return list(takewhile(lambda token: token.text.lower() not in _BEFORE_EXPRESSIONS, outer))


def _named_schemas(statement: list[Token]) -> Iterator[str]:
    """Yield the names in the list after each keyword SCHEMA. Inside parentheses it is a column."""
    outer = _outside_parentheses(statement)
    words = [token.text.lower() for token in outer]
    for at in (at for at, word in enumerate(words) if word == "schema"):
        start = at + 1
        for optional in (["if", "not", "exists"], ["if", "exists"], ["authorization"]):
            if words[start : start + len(optional)] == optional:
                start += len(optional)
        yield from map(_name, outer[start : start + 1])
        while words[start + 1 : start + 2] == [","]:
            start += 2
            yield from map(_name, outer[start : start + 1])


def _outside_parentheses(statement: list[Token]) -> list[Token]:
    depth = 0
    outer = []
    for token in statement:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.text != ")":
            outer.append(token)
    return outer


def _check_session_functions(statement: list[Token], caller: str) -> None:
    for token in statement:
        if _name(token) in _SESSION_FUNCTIONS:
            raise InvalidStatement(f"{caller}: {token.text} is not allowed.")


def _significant(sql: str, caller: str, *, several: bool = False) -> Iterator[Token]:
    """Yield the tokens of one statement, without white space, comments and strings."""
    _check_text(sql, caller)
    ended = False
    for token in tokens(sql):
        if token.kind == "comment" or token.text.isspace():
            continue
        if token.kind == "number":
            raise InvalidStatement(f"{caller}: write a parameter as :name, not {token.text}.")
        if token.kind == "quoted" and token.text[0] in "uU":  # an escape may spell any name
            raise InvalidStatement(f"{caller}: {token.text} is not allowed.")
        if ended and not several:
            raise InvalidStatement(f"{caller}: one statement at a time.")
        ended = token.text == ";"
        if token.kind != "string" and (several or not ended):
            yield token


def _verb(statement: list[Token]) -> str | None:
    """Return the first verb at the outer level: what stands in parentheses belongs to a WITH."""
    depth = 0
    for token in statement:
        depth += (token.text == "(") - (token.text == ")")
        word = token.text.lower()
        if depth == 0 and token.kind == "word":
            if word in _VERBS:
                return word
            if token is statement[0] and word != "with":
                return word
    return None


def _name(token: Token) -> str:
    if token.kind == "quoted":
        return token.text.strip('"').replace('""', '"')
    return token.text.lower() if token.kind == "word" else ""


def _check_text(sql: str, caller: str) -> None:
    """Refuse SQL that cannot be sent: a lone surrogate would cost the connection, and a NUL would
    cut the message to the server short."""
    if (flaw := find_unstorable(sql)) is not None:
        raise InvalidStatement(
            f"{caller}: the SQL contains {flaw}. Remove it, or decode the text correctly before "
            "building the SQL."
        )
