"""What `ackbox doctor` finds out about the Redis that `QUEUE_URL` names. It changes nothing.

Events run without it, only later: what is wrong here is never a failure.
"""

import asyncio
from typing import Any

from redis.exceptions import ResponseError

from ackbox.model import Finding, Verdict
from ackbox.queues.stream import KEY, make_client

_SECONDS = 2.0
_LATE = "Events run without it, but instances hear of them later."
# No stream takes an entry under this number. Whether entries are taken at all is looked at before.
_TRY = "return redis.pcall('XADD', KEYS[1], '0-0', 'never', 'added')"
_TRIED = "must be greater than 0-0"


def examine(url: str) -> Finding:
    """Raises `SettingError` for an address that cannot be one."""
    return asyncio.run(_examine(make_client(url)))


async def _examine(client: Any) -> Finding:
    try:
        async with asyncio.timeout(_SECONDS), client:
            await client.ping()
            return await _look_at_stream(client)
    except Exception as error:  # noqa: BLE001 - whatever its client raises, it is told
        remedy = f"Start it, or correct QUEUE_URL. {_LATE}"
        return Finding("redis", Verdict.WARN, f"Redis cannot be used: {_said(error)}.", remedy)


async def _look_at_stream(client: Any) -> Finding:
    kind = await client.type(KEY)
    if kind not in ("none", "stream"):
        detail = f"The key `{KEY}` is a {kind}, not a stream."
        remedy = f"Name another Redis database in QUEUE_URL, or delete the key. {_LATE}"
        return Finding("redis", Verdict.WARN, detail, remedy)
    if (refusal := await _refusal(client)) is not None:
        detail = f"Redis takes no new entries: {refusal}."
        remedy = f"Give it room (maxmemory), or its user the right to EVAL and XADD. {_LATE}"
        return Finding("redis", Verdict.WARN, detail, remedy)
    if kind == "none":
        return Finding("redis", Verdict.OK, "answers; the first event makes its stream")
    length = await client.xlen(KEY)
    entries = "1 entry" if length == 1 else f"{length} entries"
    return Finding("redis", Verdict.OK, f"answers; its stream has {entries}")


async def _refusal(client: Any) -> str | None:
    """What the server says to an attempt to add; None if it would take it."""
    try:
        await client.eval(_TRY, 1, KEY)
    except ResponseError as error:
        said = _said(error)
        return None if _TRIED in said else said
    return None


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
