"""Events held for want of a handler go back to work when one exists (`UNHANDLED=park`)."""

import asyncio
from collections.abc import Awaitable, Callable

from ackbox.errors import Unavailable
from ackbox.ports import Operations, Reader
from ackbox.telemetry import Observer, WorkerCallFailed

_RETRY_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]
Handles = Callable[[str, str], bool]
"""Whether this instance handles events of this source and type."""


async def unpark_handled(
    store: Operations,
    reader: Reader,
    handles: Handles,
    *,
    observe: Observer,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Type by type, a batch at a time: neither memory nor the start grows with what is held."""
    place: tuple[str, str] | None = ("", "")
    while place is not None:
        try:
            place = await reader.parked_type(place)
            if place is not None and handles(*place):
                while await store.unpark(*place):
                    pass
        except Unavailable as error:
            observe(WorkerCallFailed("unpark", str(error)))
            place = ("", "")
            await sleep(_RETRY_SECONDS)
