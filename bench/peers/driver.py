"""The commands of every peer's program, and how they are timed.

`PROGRAM prepare URL` makes its tables, `preload` fills them. `enqueue` is many callers that each
enqueue one job at a time and wait until it is durable; it prints a Report. `work` runs jobs that do
nothing: it prints when the first one ran, then when the last one did, and goes on until SIGTERM.
"""

import argparse
import asyncio
import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Protocol

import uvloop

from bench import traffic
from bench.load.report import percentile_ms

PAYLOAD = json.loads(traffic.PAYLOAD)
BATCH = 5000
Enqueue = Callable[[str], Awaitable[object]]
"""One job, under this key; durable when it returns."""
Ran = Callable[[], None]
"""To be called by each job."""


class Peer(Protocol):
    async def prepare(self, url: str) -> None: ...

    def enqueueing(self, url: str) -> AbstractAsyncContextManager[Enqueue]: ...

    async def preload(self, url: str, keys: list[str]) -> None: ...

    async def work(self, url: str, ran: Ran) -> None:
        """Run jobs until the task is cancelled."""


@dataclass(frozen=True)
class Report:
    """`total` is what was enqueued in the warm-up too."""

    acked: int
    total: int
    seconds: float
    cpu_seconds: float
    p50_ms: float
    p99_ms: float


@dataclass
class Monitor:
    """Started by the first job; `cpu_seconds` are those of this process since."""

    count: int
    left: int = field(init=False)
    cpu_started: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.count

    def ran(self) -> None:
        if self.left == self.count:
            self.cpu_started = time.process_time()
            _say({"first": time.time()})
        self.left -= 1
        if self.left == 0:
            cpu_seconds = time.process_time() - self.cpu_started
            _say({"last": time.time(), "cpu_seconds": cpu_seconds})


def main(peer: Peer) -> None:
    options = _parse()
    verbs = {
        "prepare": lambda: peer.prepare(options.url),
        "preload": lambda: _preload(peer, options.url, options.count),
        "enqueue": lambda: _enqueue(peer, options),
        "work": lambda: _work(peer, options.url, Monitor(options.count)),
    }
    uvloop.run(verbs[options.verb]())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.NAME")
    parser.add_argument("verb", choices=("prepare", "preload", "enqueue", "work"))
    parser.add_argument("url")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=20_000, help="jobs to preload, or to run")
    return parser.parse_args()


def _keys() -> Iterator[str]:
    return traffic.keys(secrets.token_hex(traffic.RUN_ID_LENGTH // 2))


async def _preload(peer: Peer, url: str, count: int) -> None:
    keys = _keys()
    for start in range(0, count, BATCH):
        batch = [next(keys) for _ in range(min(BATCH, count - start))]
        await peer.preload(url, batch)


async def _enqueue(peer: Peer, options: argparse.Namespace) -> None:
    keys = _keys()
    async with peer.enqueueing(options.url) as enqueue:
        warm = await _call(enqueue, keys, options.callers, options.warm_up)
        started, cpu_started = time.perf_counter(), time.process_time()
        taken = sorted(await _call(enqueue, keys, options.callers, options.seconds))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    p50_ms, p99_ms = percentile_ms(taken, 0.50), percentile_ms(taken, 0.99)
    total = len(warm) + len(taken)
    _say(asdict(Report(len(taken), total, seconds, cpu_seconds, p50_ms, p99_ms)))


async def _call(enqueue: Enqueue, keys: Iterator[str], callers: int, seconds: float) -> list[float]:
    """How long each call took; every one that was begun is waited for."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def call() -> None:
        while (begun := time.perf_counter()) < end:
            await enqueue(next(keys))
            taken.append(time.perf_counter() - begun)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call())
    return taken


async def _work(peer: Peer, url: str, monitor: Monitor) -> None:
    async with _until_sigterm():
        await peer.work(url, monitor.ran)


@asynccontextmanager
async def _until_sigterm() -> AsyncIterator[None]:
    """A second one ends the process, in case a worker takes its time."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    with suppress(asyncio.CancelledError):
        yield


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)
