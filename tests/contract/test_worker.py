"""The real worker on every queue: the same code works with each of them (W2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ackbox.handlers import Event, Registration
from ackbox.model import Content, DeadLetter, Done, EventId, Outcome, Status, WorkerId
from ackbox.telemetry import Fact, Settled
from ackbox.worker import Worker, WorkerConfig
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, record_in
from support.time.supervisor import supervisor
from support.workers.runs import CountedBacklog, executor, registration, registry

ATTEMPTS = 3


class Settlements:
    """An observer of a worker that collects the written outcomes in their order."""

    def __init__(self) -> None:
        self._written: asyncio.Queue[tuple[EventId, Outcome]] = asyncio.Queue()

    def __call__(self, fact: Fact) -> None:
        if isinstance(fact, Settled):
            for written in fact.written.items():
                self._written.put_nowait(written)

    async def until_final(self, event_id: EventId) -> list[Outcome]:
        """Return the outcomes of this event up to the one that ends it."""
        seen: list[Outcome] = []
        async with asyncio.timeout(20):
            while not seen or not isinstance(seen[-1], Done | DeadLetter):
                settled, outcome = await self._written.get()
                seen += [outcome] if settled == event_id else []
        return seen


@asynccontextmanager
async def working(backend: Backend, *handlers: Registration) -> AsyncIterator[Settlements]:
    settlements = Settlements()
    worker = Worker(
        backend.store.queue,
        registry(*handlers),
        executor(max_attempts=ATTEMPTS, backoff=lambda attempts: timedelta(0)),
        WorkerConfig(
            WorkerId("w"), count=4, batch=100, lease=timedelta(seconds=30), park_unhandled=False
        ),
        backlog=CountedBacklog(),
        clock=backend.clock,
        observe=settlements,
    )
    worker.start(supervisor())
    try:
        yield settlements
    finally:
        await worker.stop(0)


# W1, W2
async def test_a_durable_event_is_run_by_the_same_worker_on_every_queue(
    backend: Backend,
) -> None:
    seen: list[bytes] = []

    async def handle(event: Event) -> None:
        stored = await backend.reader.content(event.id)  # durable before it is run
        assert stored == Content(event.body, None)
        seen.append(event.body)

    sent = envelope("key", b'{"n":7}')
    async with working(backend, registration(handle)) as settlements:
        await record_in(backend.store, [sent])
        await settlements.until_final(sent.id)
    event = await backend.reader.event(sent.id)
    assert event is not None
    assert (event.status, event.attempts, seen) == (Status.COMPLETED, 1, [b'{"n":7}'])


# P5
async def test_a_failing_event_becomes_a_dead_letter_and_the_worker_continues(
    backend: Backend,
) -> None:
    async def handle(event: Event) -> None:
        if event.idempotency_key == "bad":
            raise ValueError(f"attempt {event.attempts}")

    bad, good = envelope("bad"), envelope("good")
    async with working(backend, registration(handle)) as settlements:
        await record_in(backend.store, [bad])
        assert len(await settlements.until_final(bad.id)) == ATTEMPTS
        await record_in(backend.store, [good])
        assert await settlements.until_final(good.id) == [Done()]
    event = await backend.reader.event(bad.id)
    assert event is not None
    assert (event.status, event.error_code) == (Status.FAILED, "ValueError")
    assert event.last_error == f"ValueError: attempt {ATTEMPTS}"
