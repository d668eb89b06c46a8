"""Unpark events when a handler for them exists (`UNHANDLED=park`)."""

import asyncio
from collections.abc import Awaitable, Callable

from ackbox.errors import OUTAGES
from ackbox.ports import Operations, Reader
from ackbox.telemetry import Observer, WorkerCallFailed

_RETRY_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]
Handles = Callable[[str, str], bool]
"""Return whether this instance handles events of this source and type."""


async def unpark_handled(
    store: Operations,
    reader: Reader,
    handles: Handles,
    *,
    observe: Observer,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Unpark the events that this instance handles, type by type and a batch at a time, so that
    neither memory nor start-up time grows with the number of parked events."""
    parked_type: tuple[str, str] | None = ("", "")
    while parked_type is not None:
        try:
            parked_type = await reader.parked_type(parked_type)
            if parked_type is not None and handles(*parked_type):
                while await store.unpark(*parked_type):
                    pass
        except OUTAGES as error:
            observe(WorkerCallFailed("unpark", str(error)))
            parked_type = ("", "")
            await sleep(_RETRY_SECONDS)
