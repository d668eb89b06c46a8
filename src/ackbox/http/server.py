"""Run uvicorn from code, in one process, with our own protocol and signal handling."""

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

from ackbox.errors import StartupError
from ackbox.http.protocol import protocol_class
from ackbox.http.requests import Asgi
from ackbox.runtime import Runtime
from ackbox.services import Service
from ackbox.telemetry import Observer, ignore_facts

T = TypeVar("T")

_MAX_DESCRIPTORS = 65_536
_RESERVED_DESCRIPTORS = 100
_BACKLOG = 2048
_CLOSE_SECONDS = 5
_ABORT_SECONDS = 4
_GC_THRESHOLD = 20_000
_SWITCH_SECONDS = 0.0001


class Server(uvicorn.Server):
    """uvicorn's server. It sweeps deadlines once a second and leaves signals to its caller.
    `deadlines` is the service that supervises the sweep."""

    deadlines: Service | None = None

    def __init__(self, config: uvicorn.Config, *, abort_seconds: float = _ABORT_SECONDS) -> None:
        super().__init__(config)
        self._abort_seconds = abort_seconds

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
        """Check the deadline of every connection. A connection whose check raises is aborted, so
        that the next sweep reaches the connections after it."""
        for connection in list(self.server_state.connections):
            try:
                connection.sweep(now)  # type: ignore[union-attr]
            except BaseException:
                connection.transport.abort()
                raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does. uvicorn would cancel requests that take too long; connections
        whose clients do not read their responses are aborted before that."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._abort_seconds, self._abort_connections)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def make_server(app: Asgi, observe: Observer = ignore_facts) -> Server:
    config = uvicorn.Config(
        app,
        http=protocol_class(_raise_connection_limit(), observe),
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
    """Return a listening socket. A port in use is found before anything else is started."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise StartupError(
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
    """Run to completion on uvloop, in a process that belongs to ackbox.

    The writer thread acquires the interpreter lock several times per commit. With the default
    switch interval of 5 ms it would wait longer for the event loop than for the disk. Objects that
    exist now live until the end, so they are frozen: the garbage collector ignores them. A higher
    threshold keeps the collector from running during every short burst of requests.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        result = runner.run(main)
    except BaseException:
        runner.close()
        raise
    if _is_stuck(runner):  # all is settled and closed; only a handler that never ends is left
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(result if isinstance(result, int) else 0)
    runner.close()
    return result


def _is_stuck(runner: asyncio.Runner) -> bool:
    """Return whether a task keeps running although it was cancelled."""
    tasks = asyncio.all_tasks(runner.get_loop())
    for task in tasks:
        task.cancel()
    if not tasks:
        return False
    _, pending = runner.get_loop().run_until_complete(asyncio.wait(tasks, timeout=_CLOSE_SECONDS))
    return bool(pending)


async def serve(app: Asgi, runtime: Runtime) -> int:
    """Serve until a signal arrives or the store fails permanently; return the exit code.

    The socket is open from the start until the end of the drain: a request that arrives too early
    or too late gets a 503 with `Retry-After`. The start may wait for its database without a limit;
    a signal ends that wait too.
    """
    listener = listen(runtime.settings.host, runtime.settings.port)
    server = make_server(app, runtime.observe)
    server.deadlines = runtime.services.add("connection-deadlines")
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            runtime.cancel_grace()  # a second signal: the operator does not want to wait (F26)
        stopping.set()

    on_stop_signal(stop)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        if await _start(runtime, stopping):
            runtime.advertise(url_of(listener))
            await _wait_for_first(serving, stopping.wait(), runtime.failed.wait())
    finally:
        await runtime.stop()
        server.stop()
        await serving
    return 0 if runtime.failure is None else 1


async def _start(runtime: Runtime, stopping: asyncio.Event) -> bool:
    """Start the runtime. Return False if a signal arrived before the start was complete."""
    start = asyncio.create_task(runtime.start())
    try:
        await _wait_for_first(start, stopping.wait())
    finally:
        start.cancel()  # no-op unless the start still waits
        await asyncio.wait([start])
    if start.cancelled():
        return False
    await start  # raises the error of a failed start
    return True


async def _wait_for_first(task: asyncio.Task[None], *waits: Coroutine[Any, Any, object]) -> None:
    waiters = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait([task, *waiters], return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()


def _raise_connection_limit() -> int:
    """Raise the limit of open files as far as allowed; return a connection limit below it (F39)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    limit = min(allowed, _MAX_DESCRIPTORS)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(max(soft, limit) - _RESERVED_DESCRIPTORS, 10)
