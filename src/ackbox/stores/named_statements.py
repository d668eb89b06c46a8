"""Error messages that name the user's statement that failed."""

import re

from ackbox.model import Statement
from ackbox.text import one_line

_CHARACTERS = 200
_LITERAL = re.compile(r"'(?:[^']|'')*'")


def name_statement(error: str, statement: Statement) -> str:
    """Return the error with the shortened text of the statement that caused it. No value is shown:
    where the database quotes a value, the message shows the name of its parameter."""
    for name, value in statement.params.items():
        for quoted in (f'"{value}"', f"'{value}'"):
            error = error.replace(quoted, f":{name}")
    return f"{error} {show_statement(statement.sql)}"


def show_statement(sql: str) -> str:
    """Return the last sentence of an error: the shortened statement, without its literals."""
    shown = one_line(_LITERAL.sub("'...'", sql), _CHARACTERS)
    return f"Statement: {shown or 'empty'}"
