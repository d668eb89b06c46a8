"""Users' own tables, as the application declares them."""

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct


class InboxMigration(Struct, frozen=True):
    """SQL that is applied once. A ledger records its name and checksum."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


class UserTables(Struct, frozen=True):
    """The SQL of `inbox.schema`, which runs at every start, and the migrations that follow it."""

    schemas: Sequence[str] = ()
    migrations: Sequence[InboxMigration] = ()
