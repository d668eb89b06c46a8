"""The named SQL blocks, bound to a connection.

A list is passed as one JSON text, and comes back as one row: every row that is bound or fetched
separately competes for the interpreter lock.
"""

from functools import cache
from typing import Any

import apsw
import msgspec

from ackbox.stores.sql import load_blocks
from ackbox.stores.sqlite.columns import parts


class Statements:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def run(self, block: str, /, **values: Any) -> apsw.Cursor:
        bound = {name: _bindable(value) for name, value in values.items()}
        return self.connection.execute(blocks()[block], bound)

    def fetch(self, block: str, /, **values: Any) -> Any:
        """Return the only value of a block that returns one row, decoded if it is JSON."""
        value = self.run(block, **values).get
        return msgspec.json.decode(value) if isinstance(value, str) else value

    def rows(self, block: str, /, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a block, with their values by column name."""
        cursor = self.run(block, **values)
        first = cursor.fetchone()
        if first is None:  # without rows, SQLite does not tell the columns
            return []
        names = [column[0] for column in cursor.get_description()]
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]


@cache
def blocks() -> dict[str, str]:
    return load_blocks("ackbox.stores.sqlite", parts())


def _bindable(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
