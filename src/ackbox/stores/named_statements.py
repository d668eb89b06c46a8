"""Error messages that name the statement of `tx` that failed."""

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
    sql = one_line(_LITERAL.sub("'...'", statement.sql), _CHARACTERS)
    return f"{error} Statement: {sql or 'empty'}"
