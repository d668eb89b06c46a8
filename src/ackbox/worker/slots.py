"""The claims that this worker holds: some wait for a slot, others run in one."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import takewhile
from time import monotonic
from typing import Any

from msgspec import Struct

from ackbox.handlers import Registration
from ackbox.model import SUSPECT, Claim, EventId, Outcome

Handle = Callable[[Claim, Registration], Coroutine[Any, Any, Outcome]]
Task = asyncio.Task[Outcome]
Key = tuple[EventId, int]
Waiting = deque[tuple[Claim, Registration]]

_PREFETCH_SECONDS = 0.05
_WEIGHT = 0.1
_SHORTEST_RUN = 1e-6


class Run(Struct, frozen=True):
    claim: Claim
    registration: Registration
    started: float


class Slots:
    """The slots of one worker, and the claims that it holds.

    `held` contains every claim of this worker until the claim is settled. Other threads may read
    it. `waiting` contains the claims that wait for a slot, and `blocked` those whose handler is at
    its concurrency limit. `on_ended` is called with each run that left its slot, and with the
    seconds that the run was there.
    """

    def __init__(
        self,
        count: int,
        batch: int,
        handle: Handle,
        on_ended: Callable[[Task, Run, float], None],
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.held: dict[EventId, Claim] = {}
        self.runs: dict[Task, Run] = {}
        self.waiting: Waiting = deque()
        self.blocked: Waiting = deque()
        self._count = count
        self._batch = batch
        self._handle = handle
        self._on_ended = on_ended
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._held_by_source: Counter[str] = Counter()
        self._suspects: set[Key] = set()
        self._running_by_handler: Counter[int] = Counter()  # by id: two handlers may share a name
        self._running_by_source: Counter[str] = Counter()  # a source stays, with 0
        self._run_seconds = _PREFETCH_SECONDS

    @property
    def capacity(self) -> int:
        """How many events to claim now for the free slots; 0 or less means none.

        The number is twice the free slots, or the number of runs that the free slots will start
        within `_PREFETCH_SECONDS` if that is more. Few claims then wait here that another worker
        could run, and quick handlers need few claim statements.
        """
        if self._settling_lags():
            return 0
        free = self._count - len(self.runs)
        soon = int(free * _PREFETCH_SECONDS / max(self._run_seconds, _SHORTEST_RUN))
        capacity = max(2 * free, min(soon, self._batch)) - len(self.waiting)
        # A claim costs a statement on the only writer. While claims wait, a few free slots are not
        # worth one.
        return capacity if not self.waiting or capacity >= self._count else 0

    @property
    def prefetch(self) -> int:
        """How many events to claim although no slot is free; 0 means none.

        Prefetching is worthwhile when more than one batch of runs will start within
        `_PREFETCH_SECONDS`. A prefetch claims at least half of these runs: otherwise there would be
        many small claims.
        """
        if self._settling_lags() or len(self.waiting) > self._batch:
            return 0
        soon = int(self._quick_slots() * _PREFETCH_SECONDS / max(self._run_seconds, _SHORTEST_RUN))
        limit = min(soon, 2 * self._batch)
        missing = limit - len(self.waiting)
        return missing if limit > self._batch and 2 * missing >= limit else 0

    @property
    def has_suspect(self) -> bool:
        return bool(self._suspects)

    def held_by_source(self) -> Mapping[str, int]:
        """Return a copy, because a store may read it in another thread."""
        return dict(self._held_by_source)

    def hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim.id in self.held:  # an earlier run, lost or not settled yet
                self.drop([self.held[claim.id]])
            self.held[claim.id] = claim
            self._held_by_source[claim.source] += 1
            if claim.unsettled >= SUSPECT:
                self._suspects.add(_key(claim))

    def drop(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            held = self.held.get(claim.id)
            if held is not None and held.run == claim.run:  # else a later run is already held
                del self.held[claim.id]
                self._uncount(claim)

    def holds(self, claim: Claim) -> bool:
        return self.held.get(claim.id) is claim

    def accepts(self, registration: Registration) -> bool:
        """Return False when the handler is at its concurrency limit and enough claims are blocked:
        more of them would crowd out other handlers."""
        return not self._is_at_limit(registration) or len(self.blocked) < 2 * self._count

    def enqueue(self, claim: Claim, registration: Registration) -> None:
        """Queue a claim for a slot, a suspect before all others.

        If the process ended while a suspect waited, the crash would be counted against the suspect.
        """
        self._running_by_source.setdefault(claim.source, 0)
        if claim.unsettled >= SUSPECT:
            self.waiting.appendleft((claim, registration))
        else:
            self.waiting.append((claim, registration))

    def fill(self) -> None:
        """Start waiting claims, oldest first, while slots are free.

        The claims of a handler at its concurrency limit are skipped, and are tried first at the
        next call.
        """
        if self.blocked:
            self.waiting, self.blocked = self.blocked + self.waiting, deque()
        while self.waiting and len(self.runs) < self._count:
            claim, registration = self._pop_next()
            if self._is_at_limit(registration):
                self.blocked.append((claim, registration))
            else:
                self._start(claim, registration)

    def lose(self, claims: Sequence[Claim]) -> None:
        self.drop(claims)
        lost = {_key(claim) for claim in claims}
        self.waiting = deque(entry for entry in self.waiting if _key(entry[0]) not in lost)
        self.blocked = deque(entry for entry in self.blocked if _key(entry[0]) not in lost)
        for task, run in self.runs.items():
            if _key(run.claim) in lost:
                task.cancel()

    def abandon(self, task: Task) -> tuple[Run, float]:
        """Free the slot of a run that does not end; return the run and its seconds in the slot."""
        run = self.runs.pop(task)
        return run, self._free_slot(run)

    def clear_waiting(self) -> list[Claim]:
        claims = [claim for claim, _ in (*self.blocked, *self.waiting)]
        self.blocked.clear()
        self.waiting.clear()
        return claims

    def _pop_next(self) -> tuple[Claim, Registration]:
        """Remove and return the oldest claim of a source that has less than half of the slots. If
        there is none, remove and return the oldest claim: no source starves another (F24)."""
        first = self.waiting[0][0].source
        if len(self._running_by_source) > 1 and self._running_by_source[first] >= self._count // 2:
            for index, (claim, _) in enumerate(self.waiting):
                if (
                    claim.source != first
                    and self._running_by_source[claim.source] < self._count // 2
                ):
                    entry = self.waiting[index]
                    del self.waiting[index]
                    return entry
        return self.waiting.popleft()

    def _settling_lags(self) -> bool:
        """Return whether runs end faster than the store settles them: claiming then pauses, so that
        the number of held claims stays bounded."""
        ended = len(self.held) - len(self.waiting) - len(self.blocked) - len(self.runs)
        return ended > 2 * max(self._batch, self._count)

    def _is_at_limit(self, registration: Registration) -> bool:
        limit = registration.concurrency
        return limit is not None and self._running_by_handler[id(registration)] >= limit

    def _quick_slots(self) -> int:
        """Count the slots that are free or whose run is younger than `_PREFETCH_SECONDS`."""
        since = self._monotonic() - _PREFETCH_SECONDS
        old = takewhile(lambda run: run.started < since, self.runs.values())  # oldest first
        return self._count - sum(1 for _ in old)

    def _start(self, claim: Claim, registration: Registration) -> None:
        if registration.concurrency is not None:
            self._running_by_handler[id(registration)] += 1
        self._running_by_source[claim.source] += 1
        # `asyncio.create_task` looks the loop up (a system call in 3.11) and sets a name, which is
        # a third of the cost of a task.
        task = self._loop.create_task(self._handle(claim, registration))
        self.runs[task] = Run(claim, registration, self._monotonic())
        # A callback, not a `finally` in the run: a task cancelled before its first step never runs.
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: Task) -> None:
        run = self.runs.pop(task, None)
        if run is not None:  # else the run was abandoned
            self._on_ended(task, run, self._free_slot(run))

    def _free_slot(self, run: Run) -> float:
        """Free the slot of a run; return for how many seconds the run had it."""
        if run.registration.concurrency is not None:
            self._running_by_handler[id(run.registration)] -= 1
        self._running_by_source[run.claim.source] -= 1
        seconds = self._monotonic() - run.started
        self._run_seconds += (seconds - self._run_seconds) * _WEIGHT
        return seconds

    def _uncount(self, claim: Claim) -> None:
        self._held_by_source[claim.source] -= 1
        if not self._held_by_source[claim.source]:
            del self._held_by_source[claim.source]
        self._suspects.discard(_key(claim))


def _key(claim: Claim) -> Key:
    return claim.id, claim.run
