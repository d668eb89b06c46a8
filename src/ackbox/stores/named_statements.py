"""Which statement of `tx` failed, for the error of a run."""

import re

from ackbox.model import Statement
from ackbox.text import one_line

_CHARACTERS = 200
_LITERAL = re.compile(r"'(?:[^']|'')*'")


def name_statement(error: str, statement: Statement) -> str:
    """Say which statement of `tx` an error is about: its text, shortened, and none of its values.
    A value that the database quotes is shown as the parameter that held it."""
    for name, value in statement.params.items():
        for quoted in (f'"{value}"', f"'{value}'"):
            error = error.replace(quoted, f":{name}")
    sql = one_line(_LITERAL.sub("'...'", statement.sql), _CHARACTERS)
    return f"{error} Statement: {sql or 'empty'}"
