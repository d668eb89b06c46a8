"""Block the writer in a commit, so that operations submitted meanwhile share the next commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ackbox.stores.sqlite.store import SqliteStore
from support.faults.faulty_vfs import FaultyVfs
from support.ledgers.events import envelope, record_in


@asynccontextmanager
async def gathering(store: SqliteStore, vfs: FaultyVfs) -> AsyncIterator[None]:
    """Block the writer until the block ends. It then runs all operations submitted inside at
    once."""
    await store.prove_writable()  # the log has begun: from now on a commit writes, then syncs once
    fault = vfs.block("sync", "wal")
    first = asyncio.ensure_future(record_in(store, [envelope("held up")]))
    await asyncio.to_thread(fault.reached.wait, 10)
    try:
        yield
        await asyncio.sleep(0)  # let scheduled tasks submit their operations
    finally:
        fault.release()
    await first
