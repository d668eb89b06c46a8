"""Wait for coroutines and end them."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def wait_unless(ended: asyncio.Event, waiting: Coroutine[Any, Any, object]) -> None:
    """Wait for a coroutine, or until the event is set; then cancel the coroutine."""
    end = asyncio.create_task(ended.wait())
    waiter = asyncio.create_task(waiting)
    await asyncio.wait([end, waiter], return_when=asyncio.FIRST_COMPLETED)
    end.cancel()
    if not waiter.done():
        await cancel_all([waiter])
    elif (error := waiter.exception()) is not None:
        raise error


async def cancel_all(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
