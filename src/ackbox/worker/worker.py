"""The worker: it claims due events, admits them to its slots, runs them and settles the outcomes.

Read `Worker` from top to bottom: an event goes through `_claim`, `_admit`, `_run` and `_settle`, in
this order. What may be claimed and started is decided in `admission.py`, which is pure.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from time import monotonic

from ackbox.errors import OUTAGES
from ackbox.handlers import Registry
from ackbox.model import Claim, Clock, Done, EventId, Outcome, Release, Suspect
from ackbox.ports import EventQueue
from ackbox.services import Services
from ackbox.telemetry import Claimed, LeaseLost, Observer, Unhandled, WorkerCallFailed
from ackbox.worker.admission import Admission, Run
from ackbox.worker.backlog import Backlog
from ackbox.worker.config import WorkerConfig
from ackbox.worker.coroutines import cancel_all, wait_unless
from ackbox.worker.execution import Executor
from ackbox.worker.settlement import Settler
from ackbox.worker.suspects import must_run_alone

_IDLE = timedelta(seconds=1)
_BUSY_HANDLER = timedelta(seconds=1)

Task = asyncio.Task[Outcome]


class Worker:
    """Works on events from `start` to `stop`. All methods run on the event loop."""

    def __init__(
        self,
        queue: EventQueue,
        registry: Registry,
        executor: Executor,
        config: WorkerConfig,
        *,
        backlog: Backlog,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._executor = executor
        self._config = config
        self._backlog = backlog
        self._clock = clock
        self._observe = observe
        self._pauses = config.pauses
        self._loop = asyncio.get_running_loop()
        self._outcome_of_unhandled = (
            Release(parked=True) if config.park_unhandled else Done("ignored")
        )
        self._admission: Admission[Task] = Admission(config.count, config.batch, registry.sources)
        self._settler = Settler(
            queue, self._admission, backlog, observe=observe, retry_seconds=config.pauses.retry
        )
        self._claim_was_full = False  # if it was, more events are probably due
        self._ahead = 0  # events to claim before the claims at hand run
        self._next_suspect_check = 0.0
        self._room_changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._grace_cancelled = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    @property
    def held(self) -> dict[EventId, Claim]:
        """Every claim of this worker that is not settled; the heartbeat thread reads it."""
        return self._admission.held

    @property
    def running(self) -> Mapping[str, int]:
        """How many runs of each handler there are now."""
        return Counter(run.registration.name for run in self._admission.runs.values())

    @property
    def queued(self) -> int:
        """How many claims wait for a slot."""
        return len(self._admission.waiting) + len(self._admission.blocked)

    def start(self, services: Services) -> None:
        run = services.run
        self._loops = [
            run("claims", self._work, stopping=self._stopping),
            run("settlements", self._settle),
            run("overdue-runs", self._abandon_unresponsive),
        ]

    async def _work(self) -> None:
        """Claim due events, admit them and start their runs. If none is due, wait.

        If the next claim is sent ahead, the runs of this claim start as soon as the next claim is
        sent.
        """
        try:
            claims = await self._claim()
            self._admit(claims)
            now = monotonic()
            self._ahead = self._admission.room_ahead(now) if self._claim_was_full else 0
            if not self._ahead:
                self._run()
            suspect = now >= self._next_suspect_check and await self._work_on_suspect(now)
            if not (claims or suspect):
                await wait_unless(self._stopping, self._queue.wait(_IDLE))
        except OUTAGES as error:
            self._observe(WorkerCallFailed("claim", str(error)))
            await wait_unless(self._stopping, asyncio.sleep(self._pauses.retry))

    async def _claim(self) -> list[Claim]:
        """Claim as many events as there is room for.

        If this claim is sent ahead, the runs of the last claim start after this claim was sent, so
        that the store and the event loop work at the same time.
        """
        ahead, self._ahead, self._claim_was_full = self._ahead, 0, False
        limit = min(ahead or await self._wait_for_room(), self._config.batch)
        if not limit:
            return []
        async with self._settler.share_commit_with_claim() if ahead else nullcontext():
            if ahead:
                self._loop.call_soon(self._run)
            lease, caps = self._config.lease, self._admission.caps()
            claims = await self._queue.claim(self._config.id, limit=limit, lease=lease, caps=caps)
        self._claim_was_full = len(claims) == limit
        return claims

    async def _wait_for_room(self) -> int:
        """Wait until events can be claimed and return how many; return 0 if the worker is
        stopping."""
        while not self._stopping.is_set():
            if (room := self._admission.room()) > 0:
                return room
            self._room_changed.clear()
            await self._room_changed.wait()
        return 0

    def _admit(self, claims: Sequence[Claim]) -> None:
        """Queue each claim for a slot, or settle it at once. If that raises, drop the remaining
        claims: a claim that stays held would have its lease renewed for ever."""
        if not claims:
            return
        self._report_claims(claims)
        self._admission.hold(claims)
        unhandled: list[Claim] = []
        done = 0
        try:
            for claim in claims:
                registration = self._registry.find(claim.source, claim.event_type)
                if self._stopping.is_set():
                    self._settler.add(claim, Release())
                elif registration is None:
                    self._settler.add(claim, self._outcome_of_unhandled)
                    unhandled.append(claim)
                elif not self._admission.admit(claim, registration):
                    self._settler.add(claim, Release(delay=_BUSY_HANDLER))
                done += 1
        finally:
            if done < len(claims):
                self._admission.drop(claims[done:])
        if unhandled:
            self._observe(Unhandled(unhandled))

    def _report_claims(self, claims: Sequence[Claim]) -> None:
        """Report how long each event waited since its arrival; never less than 0, whatever the
        clock did."""
        self._backlog.note_claimed(sum(c.attempts == 1 and not c.unsettled for c in claims))
        now = self._clock()
        waited = [(now - claim.created_at).total_seconds() for claim in claims]
        if min(waited) < 0.0:
            waited = [max(seconds, 0.0) for seconds in waited]
        self._observe(Claimed(claims, waited))

    def _run(self) -> None:
        """Run the admitted claims while slots are free, each in a task of its own."""
        if self._stopping.is_set():
            return
        for claim, registration in self._admission.take_startable():
            # `asyncio.create_task` looks the loop up (a system call in 3.11) and sets a name, which
            # is a third of the cost of a task.
            task = self._loop.create_task(self._executor.run(claim, registration))
            self._admission.start(task, claim, registration, monotonic())
            # A callback, not a `finally` in the run: a task cancelled before its first step never
            # runs.
            task.add_done_callback(self._end_run)

    def _end_run(self, task: Task) -> None:
        """Free the slot of a run, start the next run, and pass the outcome on to `_settle`."""
        now = monotonic()
        run = self._admission.end(task, now)
        if run is None:
            return  # it was abandoned
        if self._admission.waiting:
            self._run()
        if len(self._admission.waiting) <= self._config.batch:  # else there is no room for more
            self._room_changed.set()
        outcome = self._outcome_of(task, run)
        if outcome is not None:
            self._settler.add(run.claim, outcome, now - run.started, run.registration.name)

    def _outcome_of(self, task: Task, run: Run) -> Outcome | None:
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
        if not self._admission.holds(run.claim):
            return None  # the claim was lost, so its outcome cannot be written
        raised_by_handler = asyncio.CancelledError()
        return self._executor.fail(run.claim, run.registration, raised_by_handler)

    async def _settle(self) -> None:
        """Write the outcomes of runs to the store. Then there may be room for more claims."""
        await self._settler.settle_next()
        self._room_changed.set()

    async def _work_on_suspect(self, now: float) -> bool:
        """Claim and run the next suspect, unless one is held; return whether one was claimed.

        The attempt that would dead-letter a suspect runs alone: all held claims are settled before
        it, and nothing is claimed until it has ended (ADR 18).
        """
        if self._admission.has_suspect or self._stopping.is_set():
            return False
        self._next_suspect_check = now + self._pauses.suspects
        suspect = await self._queue.suspect()
        if suspect is None:
            return False
        alone = self._must_run_alone(suspect)
        if alone and not await self._wait_until_idle():
            return False
        claim = await self._queue.claim_suspect(
            self._config.id, suspect.id, lease=self._config.lease
        )
        if claim is None:
            return False
        self._next_suspect_check = 0.0  # there may be another, which runs after this one
        self._admit([claim])
        self._run()
        return not alone or await self._wait_until_idle()

    def _must_run_alone(self, suspect: Suspect) -> bool:
        registration = self._registry.find(suspect.source, suspect.event_type)
        if registration is None:
            return False
        return must_run_alone(suspect, self._executor.attempts_of(registration))

    async def _wait_until_idle(self) -> bool:
        """Wait until every held claim is settled; return False if the worker is stopping."""
        self._run()
        while self._admission.held and not self._stopping.is_set():
            self._room_changed.clear()
            await self._room_changed.wait()
        return not self._stopping.is_set()

    def lose(self, claims: Sequence[Claim], reason: str) -> None:
        """Cancel the runs of claims that this worker has lost: their results are fenced off."""
        lost = [claim for claim in claims if self._admission.holds(claim)]
        for task in self._admission.lose(claims):
            task.cancel()
        self._run()
        self._room_changed.set()
        if lost:  # else the claims were settled while their renewal was in progress
            self._observe(LeaseLost(lost, reason))

    async def _abandon_unresponsive(self) -> None:
        """Settle overdue runs whose handlers ignore their cancellation, and free their slots."""
        await asyncio.sleep(self._pauses.overdue)
        for task in self._executor.unresponsive():
            now = monotonic()
            if run := self._admission.end(task, now):
                outcome = self._executor.abandon_task(task, run.claim, run.registration)
                self._settler.add(run.claim, outcome, now - run.started, run.registration.name)
                self._run()
                self._room_changed.set()

    async def stop(self, grace: float) -> int:
        """Let running handlers finish for `grace` seconds, release all other claims, settle all
        runs.

        Return how many events went back to the queue.
        """
        released = self._settler.released
        self._stopping.set()
        self._room_changed.set()
        self._release(self._admission.clear_waiting())
        if runs := list(self._admission.runs):
            await wait_unless(self._grace_cancelled, asyncio.wait(runs, timeout=grace))
        for task in self._admission.runs:
            task.cancel()
        if self._admission.runs:
            await asyncio.wait(list(self._admission.runs), timeout=self._pauses.cancel)
        if claiming := self._loops[:1]:  # not cancelled: the events that it claims are released
            await asyncio.wait(claiming, timeout=self._pauses.flush)
        await self._settler.flush(self._pauses.flush)
        remaining = [claim for claim in self.held.values() if not self._settler.has(claim)]
        if remaining:  # their handlers ignored the cancellation
            self._release(remaining)
            await self._settler.flush(self._pauses.flush)
        await cancel_all(self._loops)
        self._executor.close()
        return self._settler.released - released

    def cancel_grace(self) -> None:
        """Make `stop` wait no longer for running handlers."""
        self._grace_cancelled.set()

    def _release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._settler.add(claim, Release())
