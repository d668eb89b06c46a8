"""FastAPI is loaded by the first request that needs it, once."""

import asyncio
import threading
from typing import Any

import pytest

from ackbox.http.asgi import LazyApi
from ackbox.http.requests import Asgi


async def unused(*_: object) -> Any:
    raise AssertionError


async def test_requests_at_the_same_time_load_the_api_once() -> None:
    threads: list[int] = []
    all_arrived = threading.Event()
    served: list[int] = []

    async def serve(scope: Any, *_: object) -> None:
        served.append(scope["n"])

    def load() -> Asgi:
        threads.append(threading.get_ident())
        assert all_arrived.wait(10)
        return serve

    api = LazyApi(load)
    requests = asyncio.gather(*(api({"n": n}, unused, unused) for n in range(5)))
    await asyncio.sleep(0)
    all_arrived.set()
    await requests
    assert sorted(served) == [0, 1, 2, 3, 4]
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()  # the event loop continues meanwhile


async def test_a_load_that_failed_is_tried_again() -> None:
    served: list[Any] = []

    async def serve(scope: Any, *_: object) -> None:
        served.append(scope)

    steps: list[Asgi | MemoryError] = [MemoryError(), serve]

    def load() -> Asgi:
        step = steps.pop(0)
        if isinstance(step, MemoryError):
            raise step
        return step

    api = LazyApi(load)
    with pytest.raises(MemoryError):
        await api({}, unused, unused)
    await api({}, unused, unused)
    assert served == [{}]
