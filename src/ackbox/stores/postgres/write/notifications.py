"""Wake-ups between instances of one ledger, by NOTIFY.

Inside the ingest transaction, a NOTIFY would take a lock at commit that the whole database shares.
It is therefore sent outside of that transaction, and at most 50 times a second. It is a hint: an
instance that misses it polls.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ackbox.errors import AckboxError
from ackbox.services import Services
from ackbox.stores.postgres.database import Database, connect
from ackbox.stores.postgres.failures import DRIVER_ERRORS
from ackbox.stores.postgres.statements import channel

_PAUSE_SECONDS = 0.02
_CHECK_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class Notifications:
    """One connection that listens and sends."""

    def __init__(self, database: Database, wake: Callable[[], None], services: Services) -> None:
        self._database = database
        self._channel = channel(database.address.schema)
        self._wake = wake
        self._pending = asyncio.Event()
        self._own_pid = 0
        self._task = services.run("notifications", self._listen_once)

    def notify(self) -> None:
        self._pending.set()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _listen_once(self) -> None:
        """Listen until the connection is lost; the database reports its own outages."""
        try:
            await self._listen()
        except (AckboxError, *DRIVER_ERRORS):
            self._wake()  # a notification may have been missed
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self) -> None:
        connection = await connect(self._database.address)
        try:
            self._own_pid = connection.get_server_pid()
            await connection.add_listener(self._channel, self._receive)
            self._wake()
            while True:
                await self._send(connection)
        finally:
            connection.terminate()

    async def _send(self, connection: Any) -> None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._pending.wait()
        except TimeoutError:
            await connection.execute("SELECT 1")  # notices a connection that died silently
            return
        self._pending.clear()
        await connection.execute(f"NOTIFY {self._channel}")
        await asyncio.sleep(_PAUSE_SECONDS)

    def _receive(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if pid != self._own_pid:
            self._wake()
