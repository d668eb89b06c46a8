"""A TCP server of a test's own, on an event loop and a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Aside:
    """`do` runs a change on its loop, whichever thread asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self.port = port

    def do(self, change: Callable[[], object]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(5)


@contextmanager
def serving_aside(handle: Handle) -> Iterator[Aside]:
    """Gone at the end; who handles a connection aborts it when cancelled."""
    started = threading.Event()
    made: list[Aside] = []
    ending = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        made.append(Aside(asyncio.get_running_loop(), listener.sockets[0].getsockname()[1]))
        started.set()
        await ending.wait()
        listener.close()
        await _end_all()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(5)
    try:
        yield made[0]
    finally:
        made[0].do(ending.set)
        thread.join(5)
        assert not thread.is_alive()


async def _end_all() -> None:
    """Connections are for their handlers to abort; transports close in the turn after that."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
