"""A TCP server for tests that runs on its own event loop in its own thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ThreadedServer:
    """A running server. `do` runs a function on its loop, and is called from other threads."""

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
def serving_in_thread(handle: Handle) -> Iterator[ThreadedServer]:
    """Serve until the block ends. A handler must abort its connection when it is cancelled."""
    started = threading.Event()
    servers: list[ThreadedServer] = []
    ending = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        servers.append(ThreadedServer(asyncio.get_running_loop(), port))
        started.set()
        await ending.wait()
        listener.close()
        await _end_all()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(5)
    try:
        yield servers[0]
    finally:
        servers[0].do(ending.set)
        thread.join(5)
        assert not thread.is_alive()


async def _end_all() -> None:
    """Cancel the handlers, which abort their connections. Transports close in the next turn."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
