"""A worker on a scripted queue, with handlers that end when a test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from ackbox.handlers import Event, Registration
from ackbox.model import WorkerId
from ackbox.telemetry import Settled
from ackbox.worker import Pauses, Worker, WorkerConfig
from support.ledgers.events import noon
from support.ledgers.facts import Facts
from support.time.polling import until
from support.time.supervisor import supervisor
from support.workers.runs import (
    CountedBacklog,
    ScriptedQueue,
    claim,
    executor,
    registration,
    registry,
)

PAUSES = Pauses(retry=0.001, suspects=0.0, cancel=0.05, flush=0.5)


class Stage:
    """A worker with a scripted queue, and handlers that end when the test says so."""

    def __init__(
        self,
        *registrations: Registration,
        count: int = 4,
        queue: ScriptedQueue | None = None,
        **config: Any,
    ) -> None:
        self.queue = queue or ScriptedQueue()
        self.backlog = CountedBacklog()
        self.facts = Facts()
        self.running: dict[str, asyncio.Event] = {}
        self.ran: list[str] = []
        given = registrations or (registration(self.handle),)
        usual = {"lease": timedelta(seconds=30), "batch": 100, "park_unhandled": False}
        settings: dict[str, Any] = {**usual, "pauses": PAUSES, **config}
        self.worker = Worker(
            self.queue,
            registry(*given),
            executor(),
            WorkerConfig(WorkerId("w"), count=count, **settings),
            backlog=self.backlog,
            clock=noon,
            observe=self.facts,
        )

    async def handle(self, event: Event) -> None:
        self.ran.append(event.id)
        self.running[event.id] = end = asyncio.Event()
        try:
            await end.wait()
        finally:
            del self.running[event.id]

    def finish(self, *keys: str) -> None:
        for key in keys or list(self.running):
            self.running[key].set()

    async def until(self, check: Callable[[], object]) -> None:
        await until(check, within=5)

    async def settled(self, count: int) -> dict[str, Any]:
        await self.until(lambda: len(self.queue.settled) >= count)
        await self.until(lambda: self.facts.of(Settled))
        return dict(self.queue.outcomes())


@asynccontextmanager
async def working(*registrations: Registration, **more: Any) -> AsyncIterator[Stage]:
    stage = Stage(*registrations, **more)
    stage.worker.start(supervisor(stage.facts))
    yield stage
    await stage.worker.stop(0)
    assert stage.worker.held == {}
    assert stage.worker._admission.runs == {}
    assert not stage.worker._admission.waiting
    assert not stage.worker._admission.blocked


def claims(prefix: str, count: int, **more: Any) -> list[Any]:
    return [claim(f"{prefix}{n}", **more) for n in range(count)]


async def yield_to_loop() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
