"""A FastAPI app with an inbox, and routes that open the ledger with other libraries.

This is a script. Its first argument is the port; the others name protections to switch off, as
`module:attribute`.
"""

import importlib
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import aiosqlite
import sqlalchemy
import uvicorn
from fastapi import FastAPI
from sqlalchemy.pool import NullPool

from ackbox import Inbox

_COUNT = "SELECT count(*) FROM events"


def switch_off(name: str) -> None:
    """Replace a function by one that does nothing. With the suffix `>undo`, the replacement also
    returns such a function, as the real one does."""
    name, _, undo = name.partition(">")
    module, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: object = importlib.import_module(module)
    for step in owners:
        owner = getattr(owner, step)
    assert hasattr(owner, last), name
    setattr(owner, last, (lambda *_: lambda: None) if undo else (lambda *_: None))


def with_sqlite3(ledger: str) -> int:
    with closing(sqlite3.connect(ledger)) as connection:
        return int(connection.execute(_COUNT).fetchone()[0])


def with_attach(ledger: str) -> int:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("ATTACH ? AS ledger", (ledger,))
        return int(connection.execute("SELECT count(*) FROM ledger.events").fetchone()[0])


def with_sqlalchemy(ledger: str) -> int:
    engine = sqlalchemy.create_engine(f"sqlite:///{ledger}", poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.execute(sqlalchemy.text(_COUNT)).scalar_one())


async def with_aiosqlite(ledger: str) -> int:
    async with aiosqlite.connect(ledger) as connection, connection.execute(_COUNT) as cursor:
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


def with_open(ledger: str) -> int:
    for suffix in ("", "-wal", "-shm"):
        Path(ledger + suffix).read_bytes()
    return 0


WAYS: dict[str, Callable[[str], int]] = {
    "sqlite3": with_sqlite3,
    "attach": with_attach,
    "sqlalchemy": with_sqlalchemy,
    "open": with_open,
}


def make_app(ledger: str) -> FastAPI:
    inbox = Inbox()
    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/inbox", inbox.asgi())

    @app.get("/foreign/{way}")
    async def foreign(way: str) -> str:
        try:
            return str(await with_aiosqlite(ledger) if way == "aiosqlite" else WAYS[way](ledger))
        except Exception as error:  # noqa: BLE001 - the test checks the error
            return f"{type(error).__name__}: {error}"

    return app


def main() -> None:
    port, *off = sys.argv[1:]
    for name in off:
        switch_off(name)
    uvicorn.run(make_app(os.environ["ACKBOX_DB_PATH"]), port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
