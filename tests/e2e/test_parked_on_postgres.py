"""Events that an instance without a handler parked are unparked by an instance that has one."""

import asyncio
from collections.abc import Callable

from pydantic import SecretStr

from ackbox import Event, Inbox
from ackbox.app import App
from ackbox.config import Settings
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import accept, envelope
from support.ledgers.postgres_backend import REBUILD_DERIVED

PARK = """UPDATE events SET status = 'pending', outcome = 'parked', claimable_at = NULL,
processed_at = NULL"""


async def test_events_parked_during_a_rolling_update_are_unparked_without_a_restart(
    postgres_of: Callable[[Install], PostgresServer],
) -> None:
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    settings = Settings(database_url=SecretStr(url), unhandled="park")
    inbox, runs = Inbox(), asyncio.Queue[int]()

    @inbox.on("order.paid")
    async def handle(event: Event) -> None:
        runs.put_nowait(event.run)

    async with inbox.running(App(settings, guest=True, unpark_seconds=0.05)) as started:
        await accept(started.ingest, envelope(event_type="order.paid"))
        assert await asyncio.wait_for(runs.get(), 10) == 1
        completed = "SELECT count(*) FROM events WHERE status = 'completed'"
        while await asyncio.to_thread(server.execute, completed, url.rpartition("/")[2]) != "1":
            pass
        for statement in (PARK, *REBUILD_DERIVED):
            await asyncio.to_thread(server.execute, statement, url.rpartition("/")[2])
        assert await asyncio.wait_for(runs.get(), 10) == 2
