"""Kill and restart a server repeatedly under load."""

import asyncio
import random

from support.app_server import AppServer
from support.history import History, Senders

SETTINGS = {"MAX_ATTEMPTS": "30", "RETRY_BASE_DELAY": "20ms", "RETRY_MAX_DELAY": "200ms"}


async def kill_repeatedly(server: AppServer, cycles: int) -> History:
    """Kill the server `cycles` times. Return when all sent events are acknowledged and settled."""
    history = History()
    senders = Senders([server.port], history, count=50, pause=0.2, patience=30)
    for _ in range(cycles):
        await asyncio.sleep(random.uniform(0.05, 0.4))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
    await asyncio.wait_for(senders.stop(), 30)
    await asyncio.to_thread(server.wait_until_idle, within=60 + cycles)  # lanes run one by one
    assert server.query("PRAGMA integrity_check") == [("ok",)]
    return history
