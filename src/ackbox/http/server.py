"""uvicorn, started from code: our protocol, our signals, one process."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import uvicorn
import uvloop

from ackbox.errors import SettingError
from ackbox.http.protocol import protocol_class
from ackbox.http.requests import Asgi
from ackbox.runtime import Runtime
from ackbox.services import Service
from ackbox.telemetry import Observer, to_nobody

T = TypeVar("T")

_DESCRIPTORS_WANTED = 65_536
_DESCRIPTORS_KEPT_BACK = 100
_BACKLOG = 2048
_CLOSE_SECONDS = 5
_CUT_OFF_SECONDS = 4
_COLLECT_AFTER = 20_000
_SWITCH_SECONDS = 0.0001


class Server(uvicorn.Server):
    """Sweeps deadlines once a second, and leaves signals to its caller. `deadlines` is the service
    that supervises the sweep."""

    deadlines: Service | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            sweep = partial(self._sweep, asyncio.get_running_loop().time())
            sweep() if self.deadlines is None else self.deadlines.guard(sweep)
        return await super().on_tick(counter)

    def _sweep(self, now: float) -> None:
        """If one connection fails here, it is cut off: the next sweep reaches those behind it."""
        for connection in list(self.server_state.connections):
            try:
                connection.sweep(now)  # type: ignore[union-attr]
            except BaseException:
                connection.transport.abort()
                raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn would cancel what is not answered in time; who does not take its answer is cut
        off before that."""
        timer = asyncio.get_running_loop().call_later(_CUT_OFF_SECONDS, self._cut_off)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def make_server(app: Asgi, observe: Observer = to_nobody) -> Server:
    config = uvicorn.Config(
        app,
        http=protocol_class(_connection_cap(), observe),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that a taken port is known before anything else is started."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise SettingError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another address or "
            "port with --host and --port, or with the settings HOST and PORT."
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def on_stop_signal(callback: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, callback)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on uvloop, in a process of our own.

    The writer thread asks for the interpreter lock several times a commit; at the default of 5 ms
    it waits for the event loop longer than for the disk. What is loaded by now stays for good: the
    garbage collector need not look at it again, nor at every short burst of requests.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        result = runner.run(main)
    except BaseException:
        runner.close()
        raise
    if _is_stuck(runner):  # all is settled and closed: a handler that never ends is left
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(result if isinstance(result, int) else 0)
    runner.close()
    return result


def _is_stuck(runner: asyncio.Runner) -> bool:
    """Whether a task goes on though it was cancelled."""
    tasks = asyncio.all_tasks(runner.get_loop())
    for task in tasks:
        task.cancel()
    if not tasks:
        return False
    _, pending = runner.get_loop().run_until_complete(asyncio.wait(tasks, timeout=_CLOSE_SECONDS))
    return bool(pending)


async def serve(app: Asgi, runtime: Runtime) -> int:
    """Until a signal, or until the store fails for good; returns the exit code.

    The socket is open from the start to the end of the drain: whoever comes too early or too late
    is told so, and when to come back. A start may wait for its database for ever; a signal ends
    that too.
    """
    listener = listen(runtime.settings.host, runtime.settings.port)
    server = make_server(app, runtime.observe)
    server.deadlines = runtime.services.add("connection-deadlines")
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            runtime.cancel_grace()  # a second signal: whoever sends it will not wait (F26)
        stopping.set()

    on_stop_signal(stop)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        if await _started(runtime, stopping):
            runtime.advertise(url_of(listener))
            await _first_of(serving, stopping.wait(), runtime.failed.wait())
    finally:
        await runtime.stop()
        server.stop()
        await serving
    return 0 if runtime.failure is None else 1


def serve_asgi(app: Asgi, host: str, port: int) -> None:
    """Serve any ASGI app the way ackbox serves its own, until a signal; the benchmarks use it."""

    async def main() -> None:
        server = make_server(app)
        on_stop_signal(server.stop)
        await server.serve([listen(host, port)])

    run(main())


async def _started(runtime: Runtime, stopping: asyncio.Event) -> bool:
    """False if it was told to stop before it had started."""
    start = asyncio.create_task(runtime.start())
    try:
        await _first_of(start, stopping.wait())
    finally:
        start.cancel()  # no-op unless it still waits
        await asyncio.wait([start])
    if start.cancelled():
        return False
    await start  # raises what it raised
    return True


async def _first_of(task: asyncio.Task[None], *waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait([task, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for each in tasks:
        each.cancel()


def _connection_cap() -> int:
    """Raise the limit of open files as far as we may, and stay below it (F39)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
    wanted = min(most, _DESCRIPTORS_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(max(soft, wanted) - _DESCRIPTORS_KEPT_BACK, 10)
