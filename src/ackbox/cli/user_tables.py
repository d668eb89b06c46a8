"""The tables that an inbox declares with `inbox.schema` and `inbox.migration`."""

from typing import TYPE_CHECKING

from ackbox.cli.user_modules import load_inbox

if TYPE_CHECKING:
    from ackbox.config import Resolved, Settings
    from ackbox.model import UserTables


def load_tables(target: str | None) -> "tuple[Resolved, UserTables]":
    """Return the settings and the tables of the inbox that `MODULE:INBOX` names. Without a name,
    return the settings of the process and no tables."""
    from ackbox.config import resolve_process
    from ackbox.model import UserTables

    if target is None:
        return resolve_process(), UserTables()
    inbox = load_inbox(target)
    return inbox.resolve(), inbox.tables


def pending_of_user(settings: "Settings", tables: "UserTables") -> list[str]:
    """Return the names of the user's migrations that are not applied yet."""
    import asyncio

    from ackbox.app import choose_backend

    async def read() -> list[str]:
        async with choose_backend(settings).open_reader() as reader:
            return await reader.pending_migrations(tables.migrations)

    return asyncio.run(read()) if tables.migrations else []
