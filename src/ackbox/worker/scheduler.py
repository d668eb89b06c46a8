"""The scheduler: it claims due events, keeps the slots full, and sleeps until more are due."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from ackbox.errors import OUTAGES
from ackbox.handlers import Registry
from ackbox.model import (
    SUSPECT,
    Caps,
    Claim,
    Clock,
    Done,
    EventId,
    Outcome,
    Release,
    WorkerId,
)
from ackbox.ports import EventQueue
from ackbox.services import Services
from ackbox.telemetry import Claimed, LeaseLost, Observer, Unhandled, WorkerCallFailed
from ackbox.worker.execution import Executor
from ackbox.worker.settlement import Settler
from ackbox.worker.slots import Run, Slots
from ackbox.worker.suspects import Suspects

_IDLE = timedelta(seconds=1)
_BUSY_HANDLER = timedelta(seconds=1)
_RETRY_SECONDS = 0.5
_LOOP_ITERATIONS = 3
_CANCEL_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
_OVERDUE_CHECK_SECONDS = 1.0


class WorkerConfig(Struct, frozen=True):
    """The settings of a worker: slots, largest claim, lease, and what to do without a handler."""

    count: int
    batch: int
    lease: timedelta
    park_unhandled: bool


class Worker:
    """Claims events, runs their handlers and settles them, from `start` to `stop`.

    All methods run on the event loop.
    """

    def __init__(
        self,
        queue: EventQueue,
        registry: Registry,
        executor: Executor,
        config: WorkerConfig,
        *,
        worker_id: WorkerId,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._executor = executor
        self._config = config
        self._id = worker_id
        self._clock = clock
        self._observe = observe
        self._slots = Slots(config.count, config.batch, executor.run, self._on_ended)
        self._settler = Settler(queue, observe=observe, on_settled=self._drop_claims)
        self._sources = set(registry.sources)
        self._suspects = Suspects(queue, registry, executor)
        self._unhandled: list[Claim] = []
        self._backlogged = False  # the last claim was full, so more events are due
        self._capacity_changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._grace_cancelled = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def held(self) -> dict[EventId, Claim]:
        """Every claim of this worker that is not settled; the heartbeat thread reads it."""
        return self._slots.held

    def start(self, services: Services) -> None:
        run = services.run
        self._loops = [
            run("claims", self._claim_or_wait, stopping=self._stopping),
            run("settlements", self._settler.settle_next),
            run("overdue-runs", self._abandon_unresponsive),
        ]

    async def stop(self, grace: float) -> None:
        """Let running handlers finish for `grace` seconds, release the others, settle all runs."""
        self._stopping.set()
        self._capacity_changed.set()
        self._release(self._slots.clear_waiting())
        await self._wait_for_runs(grace)
        for task in self._slots.runs:
            task.cancel()
        if self._slots.runs:
            await asyncio.wait(list(self._slots.runs), timeout=_CANCEL_SECONDS)
        await self._wait_for_claiming()
        await self._settler.flush(_FLUSH_SECONDS)
        remaining = [claim for claim in self.held.values() if not self._settler.has(claim)]
        self._release(remaining)  # their handlers ignored the cancellation
        await self._settler.flush(_FLUSH_SECONDS)
        await _cancel(self._loops)
        self._executor.close()

    @property
    def running(self) -> Mapping[str, int]:
        """How many runs of each handler there are now."""
        return Counter(run.registration.name for run in self._slots.runs.values())

    @property
    def queued(self) -> int:
        """How many claims wait for a slot."""
        return len(self._slots.waiting) + len(self._slots.blocked)

    def cancel_grace(self) -> None:
        """Make `stop` wait no longer for running handlers."""
        self._grace_cancelled.set()

    def lose(self, claims: Sequence[Claim], reason: str) -> None:
        """Cancel the runs of claims that this worker has lost: their results are fenced off."""
        lost = [claim for claim in claims if self._slots.holds(claim)]
        self._slots.lose(claims)
        self._fill_slots()
        if lost:  # else the claims were settled while their renewal was in progress
            self._observe(LeaseLost(lost, reason))

    async def _claim_or_wait(self) -> None:
        try:
            claimed = await self._claim_once()
            if not (await self._claim_suspect() or claimed):
                await self._wait_unless_stopping(self._queue.wait(_IDLE))
        except OUTAGES as error:
            self._observe(WorkerCallFailed("claim", str(error)))
            await self._wait_unless_stopping(asyncio.sleep(_RETRY_SECONDS))

    async def _claim_once(self) -> bool:
        """Claim events for the free slots; return whether any were due."""
        limit = min(await self._wait_for_capacity(), self._config.batch)
        claims: list[Claim] = []
        try:
            claims = await self._claim(limit) if limit else []
        finally:
            self._backlogged = 0 < limit == len(claims)
        self._slots.hold(claims)
        self._dispatch_all(claims)
        if not self._can_prefetch():
            self._slots.fill()
        return bool(claims)

    async def _claim_suspect(self) -> bool:
        """Claim the next suspect, unless one is held; return whether a suspect was claimed.

        The attempt that would dead-letter a suspect runs alone: all held claims are settled before
        it, and nothing is claimed until it has ended (ADR 18).
        """
        if self._slots.has_suspect or self._stopping.is_set():
            return False
        suspect = await self._suspects.find()
        if suspect is None:
            return False
        alone = self._suspects.must_run_alone(suspect)
        if alone and not await self._wait_until_idle():
            return False
        claim = await self._queue.claim_suspect(self._id, suspect.id, lease=self._config.lease)
        if claim is None:
            return False
        self._observe(Claimed([claim], _waiting_seconds([claim], self._clock())))
        self._slots.hold([claim])
        self._dispatch_all([claim])
        self._fill_slots()
        return not alone or await self._wait_until_idle()

    async def _wait_until_idle(self) -> bool:
        """Wait until every held claim is settled; return False if the worker is stopping."""
        self._fill_slots()
        while self._slots.held and not self._stopping.is_set():
            self._capacity_changed.clear()
            await self._capacity_changed.wait()
        return not self._stopping.is_set()

    async def _claim(self, limit: int) -> list[Claim]:
        if self._can_prefetch():
            async with self._settler.share_commit_with_claim():
                # The runs of the last claim start after this claim was sent to the store, so that
                # the store and the event loop work at the same time.
                asyncio.get_running_loop().call_soon(self._fill_slots)
                claims = await self._send_claim(limit)
        else:
            claims = await self._send_claim(limit)
        if claims:
            self._observe(Claimed(claims, _waiting_seconds(claims, self._clock())))
        return claims

    async def _send_claim(self, limit: int) -> list[Claim]:
        lease, caps = self._config.lease, self._caps()
        return await self._queue.claim(self._id, limit=limit, lease=lease, caps=caps)

    async def _wait_for_capacity(self) -> int:
        """Wait until events can be claimed and return how many; return 0 if the worker is stopping.

        Quick handlers end within a few iterations of the event loop. Waiting for these makes one
        claim for all of them instead of one for each (measured: claims of 8 before, of 40 after).
        """
        capacity = 0
        while not self._stopping.is_set():
            if self._can_prefetch():
                return self._slots.prefetch
            before, capacity = capacity, self._slots.capacity
            if 0 < capacity <= before:
                return capacity
            if capacity > 0:
                await _yield_to_loop()
            else:
                self._capacity_changed.clear()
                await self._capacity_changed.wait()
        return 0

    def _can_prefetch(self) -> bool:
        return self._backlogged and self._slots.prefetch > 0

    def _caps(self) -> Caps:
        """Return the limits of a claim. If several sources are known but only one of them has due
        events, that source may use all slots but one. The last slot stays free for the others
        (F24)."""
        count = self._config.count
        alone = count - 1 if count > 1 and len(self._sources) > 1 else None
        return Caps(share=max(count // 2, 1), held=self._slots.held_by_source(), alone=alone)

    def _dispatch_all(self, claims: list[Claim]) -> None:
        """Queue or settle each claim. If that raises, drop the remaining claims: a claim that stays
        held would have its lease renewed for ever."""
        dispatched = 0
        try:
            for claim in claims:
                self._dispatch(claim)
                dispatched += 1
        finally:
            self._slots.drop(claims[dispatched:])
            unhandled, self._unhandled = self._unhandled, []
        if unhandled:
            self._observe(Unhandled(unhandled))

    def _dispatch(self, claim: Claim) -> None:
        self._sources.add(claim.source)
        registration = self._registry.find(claim.source, claim.event_type)
        if self._stopping.is_set():
            self._settler.add(claim, Release())
        elif registration is None:
            self._unhandled.append(claim)
            park = self._config.park_unhandled
            self._settler.add(claim, Release(parked=True) if park else Done("ignored"))
        elif claim.unsettled >= SUSPECT or self._slots.accepts(registration):
            self._slots.enqueue(claim, registration)
        else:
            self._settler.add(claim, Release(delay=_BUSY_HANDLER))

    def _on_ended(self, task: asyncio.Task[Outcome], run: Run, seconds: float) -> None:
        self._fill_slots()
        outcome = self._outcome_of(task, run)
        if outcome is not None:
            self._settler.add(run.claim, outcome, seconds, run.registration.name)

    def _outcome_of(self, task: asyncio.Task[Outcome], run: Run) -> Outcome | None:
        if task.cancelled():
            return self._outcome_of_cancelled(run)
        error = task.exception()
        if error is None:
            return task.result()
        # Settled all the same: otherwise the run would keep its claim.
        return self._executor.fail(run.claim, run.registration, error)

    def _outcome_of_cancelled(self, run: Run) -> Outcome | None:
        if self._stopping.is_set():
            return Release()
        if not self._slots.holds(run.claim):
            return None  # the claim was lost, so its outcome cannot be written
        raised_by_handler = asyncio.CancelledError()
        return self._executor.fail(run.claim, run.registration, raised_by_handler)

    async def _abandon_unresponsive(self) -> None:
        """Settle overdue runs whose handlers ignore their cancellation, and free their slots."""
        await asyncio.sleep(_OVERDUE_CHECK_SECONDS)
        for task in self._executor.unresponsive():
            self._abandon(task)

    def _abandon(self, task: asyncio.Task[Outcome]) -> None:
        run, seconds = self._slots.abandon(task)
        outcome = self._executor.abandon_task(task, run.claim, run.registration)
        self._settler.add(run.claim, outcome, seconds, run.registration.name)
        self._fill_slots()

    def _fill_slots(self) -> None:
        if not self._stopping.is_set():
            self._slots.fill()
        if len(self._slots.waiting) <= self._config.batch:  # else `Slots` has no capacity
            self._capacity_changed.set()

    def _drop_claims(self, claims: Sequence[Claim]) -> None:
        had_suspect = self._slots.has_suspect
        self._slots.drop(claims)
        if had_suspect and not self._slots.has_suspect:
            self._suspects.check_now()
        self._capacity_changed.set()

    def _release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._settler.add(claim, Release())

    async def _wait_for_runs(self, grace: float) -> None:
        running = list(self._slots.runs)
        if running and not self._grace_cancelled.is_set():
            grace_cancelled = asyncio.create_task(self._grace_cancelled.wait())
            ended = asyncio.create_task(asyncio.wait(running, timeout=grace))
            await asyncio.wait([ended, grace_cancelled], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            grace_cancelled.cancel()

    async def _wait_for_claiming(self) -> None:
        """Wait for a claim in progress instead of cancelling it: its events must be released."""
        claiming = self._loops[:1]
        if claiming:
            await asyncio.wait(claiming, timeout=_FLUSH_SECONDS)

    async def _wait_unless_stopping(self, waiting: Coroutine[Any, Any, None]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        waiter = asyncio.create_task(waiting)
        await asyncio.wait([stopping, waiter], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiter.done():
            await _cancel([waiter])
        elif (error := waiter.exception()) is not None:
            raise error


def _waiting_seconds(claims: Sequence[Claim], now: datetime) -> list[float]:
    """Return how long each event waited since its arrival; never less than 0, whatever the clock
    did."""
    waited = [(now - claim.created_at).total_seconds() for claim in claims]
    return waited if min(waited) >= 0.0 else [max(seconds, 0.0) for seconds in waited]


async def _yield_to_loop() -> None:
    for _ in range(_LOOP_ITERATIONS):
        await asyncio.sleep(0)


async def _cancel(tasks: Sequence["asyncio.Future[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
