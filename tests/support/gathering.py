"""Hold the writer up in a commit, so that what is submitted meanwhile shares the next one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ackbox.stores.sqlite.store import SqliteStore
from support.events import envelope
from support.faulty_vfs import FaultyVfs


@asynccontextmanager
async def gathering(store: SqliteStore, vfs: FaultyVfs) -> AsyncIterator[None]:
    """At the end of the block the writer goes on, and meets everything submitted inside at once."""
    await store.prove_writable()  # the log is begun: from here on a commit writes, then syncs once
    fault = vfs.hold_up("sync", "wal")
    first = asyncio.ensure_future(store.record([envelope("held up")]))
    await asyncio.to_thread(fault.reached.wait, 10)
    try:
        yield
        await asyncio.sleep(0)  # what was only scheduled is submitted now
    finally:
        fault.release()
    await first
