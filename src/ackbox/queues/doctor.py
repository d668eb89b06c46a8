"""What `ackbox doctor` finds out about the Redis that `QUEUE_URL` names. It changes nothing.

Events run without it, only later: what is wrong here is never a failure.
"""

import asyncio
from typing import Any

from ackbox.model import Finding, Verdict
from ackbox.queues.stream import KEY, make_client

_SECONDS = 2.0
_LATE = "Events run without it, but instances hear of them later."


def examine(url: str) -> Finding:
    """Raises `SettingError` for an address that cannot be one."""
    return asyncio.run(_examine(make_client(url)))


async def _examine(client: Any) -> Finding:
    try:
        async with asyncio.timeout(_SECONDS), client:
            await client.ping()
            return await _look_at_stream(client)
    except Exception as error:  # noqa: BLE001 - whatever its client raises, it is told
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        remedy = f"Start it, or correct QUEUE_URL. {_LATE}"
        return Finding("redis", Verdict.WARN, f"Redis cannot be used: {said}.", remedy)


async def _look_at_stream(client: Any) -> Finding:
    kind = await client.type(KEY)
    if kind == "none":
        return Finding("redis", Verdict.OK, "answers; the first event makes its stream")
    if kind != "stream":
        detail = f"The key `{KEY}` is a {kind}, not a stream."
        remedy = f"Name another Redis database in QUEUE_URL, or delete the key. {_LATE}"
        return Finding("redis", Verdict.WARN, detail, remedy)
    length = await client.xlen(KEY)
    entries = "1 entry" if length == 1 else f"{length} entries"
    return Finding("redis", Verdict.OK, f"answers; its stream has {entries}")
