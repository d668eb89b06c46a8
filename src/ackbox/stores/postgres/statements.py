"""The named SQL blocks of this store, and other names that belong to one ledger.

A database may hold several ledgers, each in a schema of its own. The SQL files and the migrations
name that schema by the placeholder `{schema}`, which is replaced once per process.
"""

from functools import cache
from hashlib import sha256

from ackbox.stores.postgres.columns import parts
from ackbox.stores.postgres.parameters import Compiled, compile_named
from ackbox.stores.sql import load_blocks

Blocks = dict[str, Compiled]

_PLACEHOLDER = "{schema}"


@cache
def blocks(schema: str) -> Blocks:
    """Return the blocks with `$n` for their named parameters."""
    loaded = load_blocks("ackbox.stores.postgres", parts())
    return {name: compile_named(in_schema(sql, schema)) for name, sql in loaded.items()}


def in_schema(template: str, schema: str) -> str:
    """Replace the placeholder. The name is quoted because it may be a keyword, such as `user`."""
    return template.replace(_PLACEHOLDER, f'"{schema}"')


def lock_key(schema: str, purpose: str) -> int:
    """Return the key of an advisory lock: the whole database shares one space of 64 bits."""
    digest = sha256(f"ackbox {purpose} {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def channel(schema: str) -> str:
    """Return the NOTIFY channel. A long schema name would leave no room for a prefix."""
    return f"ackbox_{hash_schema(schema)}"


def hash_schema(schema: str) -> str:
    """Return a short name of a schema, for names that the server limits to 63 bytes."""
    return sha256(schema.encode()).hexdigest()[:16]
