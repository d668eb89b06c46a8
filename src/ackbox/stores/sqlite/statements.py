"""The named SQL blocks, bound to a connection. Sets travel as one JSON text, and come back as one
row: every row bound or fetched on its own is a fight for the interpreter lock."""

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
        """The one value of a block that answers with one JSON row."""
        found = self.run(block, **values).get
        return msgspec.json.decode(found) if isinstance(found, str) else found


@cache
def blocks() -> dict[str, str]:
    return load_blocks("ackbox.stores.sqlite")


def _bindable(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
