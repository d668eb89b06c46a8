"""Events held for want of a handler go back to work when one exists (`UNHANDLED=hold`)."""

import asyncio
from collections.abc import Awaitable, Callable

from ackbox.errors import Unavailable
from ackbox.ports import Reader, Upkeep
from ackbox.telemetry import Observer, WorkerTrouble

_RETRY_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]
Handles = Callable[[str, str], bool]
"""Whether this instance handles events of this source and type."""


async def put_back_held(
    store: Upkeep,
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
            place = await reader.held_type(place)
            if place is not None and handles(*place):
                while await store.put_back(*place):
                    pass
        except Unavailable as error:
            observe(WorkerTrouble("put back", str(error)))
            place = ("", "")
            await sleep(_RETRY_SECONDS)
