"""The named SQL blocks of this store, with `$n` for their names."""

from functools import cache

from ackbox.stores.postgres.parameters import Compiled, compile_named
from ackbox.stores.sql import load_blocks


@cache
def blocks() -> dict[str, Compiled]:
    return {name: compile_named(sql) for name, sql in load_blocks("ackbox.stores.postgres").items()}
