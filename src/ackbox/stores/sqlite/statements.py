"""The named SQL blocks, bound to a connection.

A list is passed as one JSON text, and comes back as one row: every row that is bound or fetched
separately competes for the interpreter lock.
"""

from functools import cache
from typing import Any

import apsw
import msgspec

from ackbox.stores.sql import load_blocks


class Statements:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def run(self, block: str, **values: Any) -> apsw.Cursor:
        bound = {name: _bindable(value) for name, value in values.items()}
        return self.connection.execute(blocks()[block], bound)

    def fetch(self, block: str, **values: Any) -> Any:
        """Return the only value of a block that returns one row, decoded if it is JSON."""
        value = self.run(block, **values).get
        return msgspec.json.decode(value) if isinstance(value, str) else value


@cache
def blocks() -> dict[str, str]:
    return load_blocks("ackbox.stores.sqlite")


def _bindable(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
