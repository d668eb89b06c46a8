"""Wait for a condition, with a time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], *, within: float = 10.0, every: float = 0.01) -> T:
    """Return what `check` returns as soon as it is true. Fail if it is not true in time."""
    end = time.monotonic() + within
    while not (result := check()):
        if time.monotonic() > end:
            raise AssertionError(f"{check} was not true within {within} seconds, but {result!r}")
        time.sleep(every)
    return result


async def until(
    check: Callable[[], object] | Callable[[], Awaitable[object]], *, within: float = 10.0
) -> None:
    """Let the event loop run until `check` is true. Fail if it is not true in time."""
    end = time.monotonic() + within
    while not (result := await _call(check)):
        if time.monotonic() > end:
            raise AssertionError(f"{check} was not true within {within} seconds, but {result!r}")
        await asyncio.sleep(0.002)


async def _call(check: Callable[[], object]) -> object:
    result = check()
    return await result if isinstance(result, Awaitable) else result
