"""What SQL of the user's own may do: by its tokens, since PostgreSQL has no authorizer. Triggers
and functions of the user's are outside this rule."""

from collections.abc import Iterator

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.parameters import Token, tokens

OWN_TABLES = frozenset(
    (
        "live_events",
        "audit",
        "cursors",
        "events",
        "write_probe",
        "lanes",
        "promotion",
        "schema_migrations",
        "status_counts",
        "tombstones",
    )
)
_STEERING = frozenset(
    (
        *("set_config", "pg_settings", "pg_terminate_backend", "pg_cancel_backend", "dblink_exec"),
        # They outlive the transaction, on a connection that others get.
        *("pg_advisory_lock", "pg_advisory_lock_shared"),
        *("pg_try_advisory_lock", "pg_try_advisory_lock_shared"),
    )
)
_END = Token("sign", ";")
_MAKES = frozenset(
    {"create", "alter", "drop", "comment", "grant", "insert", "update", "delete", "with"}
)
_WRITES = frozenset({"insert", "update", "delete"})
_VERBS = _WRITES | {"select", "merge", "values", "table"}
_TAKEN = (
    "is a name of ackbox's own. On PostgreSQL nothing in your SQL may have it, be it a table, a "
    "column or an alias: choose another."
)
_NOT_ALLOWED = "only INSERT, UPDATE and DELETE on tables of your own are allowed."


def check_effect(sql: str) -> None:
    """One INSERT, UPDATE or DELETE, also after WITH."""
    if not _is_text(sql):
        raise InvalidStatement("tx: the SQL has half of a character in it.")
    meant = list(_meant(sql, "tx"))
    _check_names(meant, "tx")
    if _verb(meant) not in _WRITES:
        raise InvalidStatement(f"tx: {_NOT_ALLOWED}")


def check_schema(sql: str) -> None:
    """DDL that names no table of ackbox's, and leaves the session as it is."""
    statement: list[Token] = []
    for token in [*_meant(sql, "inbox.schema", several=True), _END]:
        if token != _END:
            statement.append(token)
            continue
        _check_names(statement, "inbox.schema")
        if statement and _name(statement[0]) not in _MAKES:
            raise InvalidStatement(f"inbox.schema: {statement[0].text} is not allowed.")
        statement = []


def check_user_query(sql: str) -> None:
    if _verb(list(_meant(sql, "inbox.read"))) not in ("select", "values", "table"):
        raise InvalidStatement("inbox.read takes one SELECT.")


def _check_names(meant: list[Token], who: str) -> None:
    for token in meant:
        name = _name(token)
        if name in OWN_TABLES:
            raise InvalidStatement(f"{who}: {name} {_TAKEN}")
        if name in _STEERING or (token.kind == "quoted" and token.text[0] in "uU"):
            raise InvalidStatement(f"{who}: {token.text} is not allowed.")


def _meant(sql: str, who: str, *, several: bool = False) -> Iterator[Token]:
    """All that is not white space, comment or string; of one statement."""
    ended = False
    for token in tokens(sql):
        if token.kind == "comment" or token.text.isspace():
            continue
        if token.kind == "number":
            raise InvalidStatement(f"{who}: parameters are named, as in :name, not {token.text}.")
        if ended and not several:
            raise InvalidStatement(f"{who}: one statement at a time.")
        ended = token.text == ";"
        if token.kind != "string" and (several or not ended):
            yield token


def _verb(meant: list[Token]) -> str | None:
    """The first at the outer level: what stands in parentheses belongs to a WITH."""
    depth = 0
    for token in meant:
        depth += (token.text == "(") - (token.text == ")")
        word = token.text.lower()
        if depth == 0 and token.kind == "word":
            if word in _VERBS:
                return word
            if token is meant[0] and word != "with":
                return word
    return None


def _name(token: Token) -> str:
    if token.kind == "quoted":
        return token.text.strip('"').replace('""', '"')
    return token.text.lower() if token.kind == "word" else ""


def _is_text(sql: str) -> bool:
    """A lone surrogate would cost the connection."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True
