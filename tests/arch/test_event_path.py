"""The path of an event through the worker is short, and ARCHITECTURE.md lists it (W18)."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from ackbox.handlers import Event
from ackbox.model import Clock, WorkerId
from ackbox.ports import EventQueue
from ackbox.telemetry import Fact, Observer, Settled
from ackbox.worker import Pauses, Worker, WorkerConfig
from support.ledgers.backends import SqliteBackend
from support.ledgers.events import envelope, record_in
from support.time.supervisor import supervisor
from support.workers.call_trace import CallTrace
from support.workers.runs import CountedBacklog, executor, registration, registry

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
MOST_CALLS = 35
_SECTION = re.compile(r"^## From claim to settle$(.*?)^#", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"^\d+\. `([\w.]+)`", re.MULTILINE)
WORKER = "/ackbox/worker/"


async def test_processing_an_event_takes_few_calls_and_all_are_listed(tmp_path: Path) -> None:
    calls = await calls_from_claim_to_settle(tmp_path)
    assert len(calls) <= MOST_CALLS
    assert listed_calls() == calls


def listed_calls() -> list[str]:
    section = _SECTION.search(ARCHITECTURE.read_text())
    assert section is not None
    return _LISTED.findall(section[1])


class IdleQueue:
    """The queue of a store; `idle` is set when the worker waits because no event is due."""

    def __init__(self, queue: EventQueue) -> None:
        self.idle = asyncio.Event()
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def wait(self, timeout: timedelta) -> None:
        self.idle.set()
        await self._queue.wait(timeout)
        self.idle.clear()


class FirstTurn:
    """Leaves out what the worker does for other events: its later turns, and all that is not
    called by its loops, runs and callbacks."""

    def __init__(self) -> None:
        self._first: FrameType | None = None

    def __call__(self, chain: list[FrameType]) -> bool:
        turns = [frame for frame in chain if frame.f_code.co_qualname == "Worker._work"]
        if self._first is None and turns:
            self._first = turns[0]
        if turns:
            return turns[0] is self._first
        return self._first is not None and any(WORKER in f.f_code.co_filename for f in chain)


async def calls_from_claim_to_settle(folder: Path) -> list[str]:
    """Process one event on SQLite, by a worker that was idle before; return the calls in order."""
    backend = SqliteBackend(folder)
    await backend.open()
    settled = asyncio.Event()

    def observe(fact: Fact) -> None:
        if isinstance(fact, Settled):
            trace.counting = False
            settled.set()

    with CallTrace(FirstTurn()) as trace:
        queue = IdleQueue(backend.store.queue)
        worker = make_worker(queue, backend.clock, observe)
        worker.start(supervisor())
        for key in ("the first fills caches", "the second is counted"):
            async with asyncio.timeout(20):
                await queue.idle.wait()
                trace.calls.clear()
                settled.clear()
                trace.counting = key == "the second is counted"
                await record_in(backend.store, [envelope(key)])
                await settled.wait()
    await worker.stop(0)
    await backend.close()
    return trace.calls


def make_worker(queue: Any, clock: Clock, observe: Observer) -> Worker:
    async def handle(event: Event) -> None:
        """Do nothing."""

    pauses = Pauses(suspects=3600.0)
    lease = timedelta(seconds=30)
    return Worker(
        queue,
        registry(registration(handle)),
        executor(),
        WorkerConfig(WorkerId("w"), 4, 100, lease, park_unhandled=False, pauses=pauses),
        backlog=CountedBacklog(),
        clock=clock,
        observe=observe,
    )
