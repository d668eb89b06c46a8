"""One scheduler: it claims what is due, keeps the slots full, and sleeps until there is more."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from ackbox.errors import Unavailable
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
_TURNS = 3
_CANCEL_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
_LOOK_SECONDS = 1.0


class WorkerConfig(Struct, frozen=True):
    """How this worker works, from the settings."""

    count: int
    batch: int
    lease: timedelta
    park_unhandled: bool


class Worker:
    """Runs on the event loop from `start` to `stop`."""

    def __init__(
        self,
        queue: EventQueue,
        registry: Registry,
        executor: Executor,
        rules: WorkerConfig,
        *,
        worker_id: WorkerId,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._executor = executor
        self._rules = rules
        self._id = worker_id
        self._clock = clock
        self._observe = observe
        self._slots = Slots(rules.count, rules.batch, executor.run, self._ended)
        self._settler = Settler(queue, observe=observe, let_go=self._let_go)
        self._sources = set(registry.sources)
        self._suspects = Suspects(queue, registry, executor)
        self._unhandled: list[Claim] = []
        self._backlogged = False  # the last claim was full: there is more
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def held(self) -> dict[EventId, Claim]:
        """Every claim of ours that is not settled yet; the heartbeat reads it from its thread."""
        return self._slots.held

    def start(self, services: Services) -> None:
        run = services.run
        self._loops = [
            run("claims", self._claim_or_wait, stopping=self._stopping),
            run("settlements", self._settler.settle_next),
            run("overdue-runs", self._abandon_stubborn),
        ]

    async def stop(self, grace: float) -> None:
        """Let running handlers finish for a while, hand the rest back, settle everything."""
        self._stopping.set()
        self._room.set()
        self._hand_back(self._slots.empty_waiting())
        await self._running_end(grace)
        for task in self._slots.runs:
            task.cancel()
        if self._slots.runs:
            await asyncio.wait(list(self._slots.runs), timeout=_CANCEL_SECONDS)
        await self._end_claiming()
        await self._settler.flush(_FLUSH_SECONDS)
        left = [claim for claim in self.held.values() if not self._settler.has(claim)]
        self._hand_back(left)  # whose handler would not even be cancelled
        await self._settler.flush(_FLUSH_SECONDS)
        await _end(self._loops)
        self._executor.close()

    @property
    def running(self) -> Mapping[str, int]:
        """How many runs of each handler there are now."""
        return Counter(run.registration.name for run in self._slots.runs.values())

    @property
    def queued(self) -> int:
        """How many claims wait for a slot."""
        return len(self._slots.waiting) + len(self._slots.passed)

    def cancel_grace(self) -> None:
        """Who waits in `stop` for running handlers waits no longer."""
        self._hurried.set()

    def lose(self, claims: Sequence[Claim], reason: str) -> None:
        """These are no longer ours: stop their runs; their results would be fenced off."""
        lost = [claim for claim in claims if self._slots.holds(claim)]
        self._slots.lose(claims)
        self._go_on()
        if lost:  # else they were settled while their renewal was under way
            self._observe(LeaseLost(lost, reason))

    async def _claim_or_wait(self) -> None:
        try:
            found = await self._claim_once()
            if not (await self._claim_suspect() or found):
                await self._unless_stopping(self._queue.wait(_IDLE))
        except Unavailable as error:
            self._observe(WorkerCallFailed("claim", str(error)))
            await self._unless_stopping(asyncio.sleep(_RETRY_SECONDS))

    async def _claim_once(self) -> bool:
        """Whether there was something."""
        limit = min(await self._find_room(), self._rules.batch)
        claims: list[Claim] = []
        try:
            claims = await self._claim(limit) if limit else []
        finally:
            self._backlogged = 0 < limit == len(claims)
        self._slots.hold(claims)
        self._take_all(claims)
        if not self._can_look_ahead():
            self._slots.fill()
        return bool(claims)

    async def _claim_suspect(self) -> bool:
        """Claim the next suspect, unless one is held; return whether there was one. The attempt
        that would dead-letter it runs with nothing beside it: what is held is settled first, and
        nothing is claimed until it has ended (ADR 18)."""
        if self._slots.has_suspect or self._stopping.is_set():
            return False
        suspect = await self._suspects.find()
        if suspect is None:
            return False
        alone = self._suspects.must_run_alone(suspect)
        if alone and not await self._hold_nothing():
            return False
        claim = await self._queue.claim_suspect(self._id, suspect.id, lease=self._rules.lease)
        if claim is None:
            return False
        self._observe(Claimed([claim], _waited([claim], self._clock())))
        self._slots.hold([claim])
        self._take_all([claim])
        self._go_on()
        return not alone or await self._hold_nothing()

    async def _hold_nothing(self) -> bool:
        """Wait until all that is held has run and is settled; False when we stop."""
        self._go_on()
        while self._slots.held and not self._stopping.is_set():
            self._room.clear()
            await self._room.wait()
        return not self._stopping.is_set()

    async def _claim(self, limit: int) -> list[Claim]:
        if self._can_look_ahead():
            async with self._settler.beside_a_claim():
                # The runs of the last claim start when this one is on its way to the store: so
                # both have work at the same time.
                asyncio.get_running_loop().call_soon(self._go_on)
                claims = await self._ask(limit)
        else:
            claims = await self._ask(limit)
        if claims:
            self._observe(Claimed(claims, _waited(claims, self._clock())))
        return claims

    async def _ask(self, limit: int) -> list[Claim]:
        lease, caps = self._rules.lease, self._caps()
        return await self._queue.claim(self._id, limit=limit, lease=lease, caps=caps)

    async def _find_room(self) -> int:
        """Waits for some; 0 when we stop. Quick handlers end within a few turns of the loop: then
        one claim for all of them instead of one for each (measured: claims of 8 before, of 40
        after)."""
        room = 0
        while not self._stopping.is_set():
            if self._can_look_ahead():
                return self._slots.ahead
            before, room = room, self._slots.room
            if 0 < room <= before:
                return room
            if room > 0:
                await _turn_the_loop()
            else:
                self._room.clear()
                await self._room.wait()
        return 0

    def _can_look_ahead(self) -> bool:
        return self._backlogged and self._slots.ahead > 0

    def _caps(self) -> Caps:
        """Once other sources are known, one that is alone leaves them a slot to come to (F24)."""
        count = self._rules.count
        alone = count - 1 if count > 1 and len(self._sources) > 1 else None
        return Caps(share=max(count // 2, 1), held=self._slots.by_source(), alone=alone)

    def _take_all(self, claims: list[Claim]) -> None:
        """A claim that cannot be taken must not stay held: its lease would be renewed for ever."""
        taken = 0
        try:
            for claim in claims:
                self._take(claim)
                taken += 1
        finally:
            self._slots.let_go(claims[taken:])
            unhandled, self._unhandled = self._unhandled, []
        if unhandled:
            self._observe(Unhandled(unhandled))

    def _take(self, claim: Claim) -> None:
        self._sources.add(claim.source)
        registration = self._registry.find(claim.source, claim.event_type)
        if self._stopping.is_set():
            self._settler.add(claim, Release())
        elif registration is None:
            self._unhandled.append(claim)
            held = self._rules.park_unhandled
            self._settler.add(claim, Release(parked=True) if held else Done("ignored"))
        elif claim.unsettled >= SUSPECT or self._slots.takes(registration):
            self._slots.put(claim, registration)
        else:
            self._settler.add(claim, Release(delay=_BUSY_HANDLER))

    def _ended(self, task: asyncio.Task[Outcome], run: Run, seconds: float) -> None:
        self._go_on()
        outcome = self._outcome(task, run)
        if outcome is not None:
            self._settler.add(run.claim, outcome, seconds, run.registration.name)

    def _outcome(self, task: asyncio.Task[Outcome], run: Run) -> Outcome | None:
        if task.cancelled():
            return self._cancelled(run)
        error = task.exception()
        if error is None:
            return task.result()
        return self._executor.fail(run.claim, run.registration, error)  # never left behind

    def _cancelled(self, run: Run) -> Outcome | None:
        if self._stopping.is_set():
            return Release()
        if not self._slots.holds(run.claim):
            return None  # the claim was lost, and so is its result
        by_the_user = asyncio.CancelledError()
        return self._executor.fail(run.claim, run.registration, by_the_user)

    async def _abandon_stubborn(self) -> None:
        """A handler that swallows its cancellation must not keep its slot, nor its event."""
        await asyncio.sleep(_LOOK_SECONDS)
        for task in self._executor.stubborn():
            self._abandon(task)

    def _abandon(self, task: asyncio.Task[Outcome]) -> None:
        run, seconds = self._slots.abandon(task)
        outcome = self._executor.abandon_task(task, run.claim, run.registration)
        self._settler.add(run.claim, outcome, seconds, run.registration.name)
        self._go_on()

    def _go_on(self) -> None:
        if not self._stopping.is_set():
            self._slots.fill()
        if len(self._slots.waiting) <= self._rules.batch:  # else there is no room: see `Slots`
            self._room.set()

    def _let_go(self, claims: Sequence[Claim]) -> None:
        had_suspect = self._slots.has_suspect
        self._slots.let_go(claims)
        if had_suspect and not self._slots.has_suspect:
            self._suspects.look_at_once()
        self._room.set()

    def _hand_back(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._settler.add(claim, Release())

    async def _running_end(self, grace: float) -> None:
        running = list(self._slots.runs)
        if running and not self._hurried.is_set():
            expedited = asyncio.create_task(self._hurried.wait())
            ended = asyncio.create_task(asyncio.wait(running, timeout=grace))
            await asyncio.wait([ended, expedited], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            expedited.cancel()

    async def _end_claiming(self) -> None:
        """A claim under way is waited for, not cancelled: what it takes must be handed back."""
        claiming = self._loops[:1]
        if claiming:
            await asyncio.wait(claiming, timeout=_FLUSH_SECONDS)

    async def _unless_stopping(self, waiting: Coroutine[Any, Any, None]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        waiter = asyncio.create_task(waiting)
        await asyncio.wait([stopping, waiter], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiter.done():
            await _end([waiter])
        elif (error := waiter.exception()) is not None:
            raise error


def _waited(claims: Sequence[Claim], now: datetime) -> list[float]:
    waited = [(now - claim.created_at).total_seconds() for claim in claims]
    return waited if min(waited) >= 0.0 else [max(seconds, 0.0) for seconds in waited]


async def _turn_the_loop() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _end(tasks: Sequence["asyncio.Future[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
