"""Waiting for something to become true, with an end."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], *, within: float = 10.0, every: float = 0.01) -> T:
    """What `check` returns once that is true; fails loudly when it never is."""
    end = time.monotonic() + within
    while not (result := check()):
        if time.monotonic() > end:
            raise AssertionError(f"{check} was not true within {within} seconds, but {result!r}")
        time.sleep(every)
    return result
