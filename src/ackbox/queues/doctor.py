"""`ackbox doctor` on the Redis server of `QUEUE_URL`: examine it without changing anything.

Events run without Redis, only later. So every problem is a warning, never a failure.
"""

import asyncio
from typing import Any

from redis.exceptions import ResponseError

from ackbox.model import Finding, Verdict
from ackbox.queues.stream import KEY, make_client

_SECONDS = 2.0
_LATE = "Events run without Redis, but start later."
# No stream accepts this entry id. The server checks its memory and our rights before the id.
_ADD_IMPOSSIBLE = "return redis.pcall('XADD', KEYS[1], '0-0', 'never', 'added')"
_ACCEPTED = "must be greater than 0-0"


def examine(url: str) -> Finding:
    """Return the finding. Raise `SettingError` for an unusable URL."""
    return asyncio.run(_examine(make_client(url)))


async def _examine(client: Any) -> Finding:
    try:
        async with asyncio.timeout(_SECONDS), client:
            await client.ping()
            return await _examine_stream(client)
    except Exception as error:  # noqa: BLE001 - whatever the client raises is reported
        remedy = f"Start it, or correct QUEUE_URL. {_LATE}"
        return Finding("redis", Verdict.WARN, f"Redis cannot be used: {_message(error)}.", remedy)


async def _examine_stream(client: Any) -> Finding:
    kind = await client.type(KEY)
    if kind not in ("none", "stream"):
        detail = f"The key `{KEY}` is a {kind}, not a stream."
        remedy = f"Name another Redis database in QUEUE_URL, or delete the key. {_LATE}"
        return Finding("redis", Verdict.WARN, detail, remedy)
    if (refusal := await _refusal(client)) is not None:
        detail = f"Redis takes no new entries: {refusal}."
        remedy = f"Raise maxmemory, or grant the user EVAL and XADD. {_LATE}"
        return Finding("redis", Verdict.WARN, detail, remedy)
    if kind == "none":
        return Finding("redis", Verdict.OK, "responds; the first event creates its stream")
    length = await client.xlen(KEY)
    entries = "1 entry" if length == 1 else f"{length} entries"
    return Finding("redis", Verdict.OK, f"responds; its stream has {entries}")


async def _refusal(client: Any) -> str | None:
    """Return why the server would refuse a new entry; None if it would accept the entry."""
    try:
        await client.eval(_ADD_IMPOSSIBLE, 1, KEY)
    except ResponseError as error:
        message = _message(error)
        return None if _ACCEPTED in message else message
    return None


def _message(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
