"""What this worker holds: claims that wait for a slot, and runs that have one."""

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

_AHEAD_SECONDS = 0.05
_WEIGHT = 0.1
_TICK = 1e-6


class Run(Struct, frozen=True):
    claim: Claim
    registration: Registration
    started: float


class Slots:
    """`ended` is told of each run that left its slot, and of its seconds there. `held` has every
    claim of ours until it is settled; other threads may read it."""

    def __init__(
        self,
        count: int,
        most: int,
        handle: Handle,
        ended: Callable[[Task, Run, float], None],
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.held: dict[EventId, Claim] = {}
        self.runs: dict[Task, Run] = {}
        self.waiting: Waiting = deque()
        self.passed: Waiting = deque()
        self._count = count
        self._most = most
        self._handle = handle
        self._ended = ended
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._held_of: Counter[str] = Counter()
        self._suspects: set[Key] = set()
        self._active: Counter[int] = Counter()  # by handler: two may have one name
        self._of_source: Counter[str] = Counter()  # one that was ever here stays
        self._run_seconds = _AHEAD_SECONDS

    @property
    def room(self) -> int:
        """Twice the free slots, or what these will start within a moment if that is more, so
        that little waits here that another could run, and quick handlers share few claims."""
        if self._is_clogged():
            return 0
        free = self._count - len(self.runs)
        soon = int(free * _AHEAD_SECONDS / max(self._run_seconds, _TICK))
        room = max(2 * free, min(soon, self._most)) - len(self.waiting)
        # A claim costs a statement on the only writer: while something waits, not for a few slots.
        return room if not self.waiting or room >= self._count else 0

    @property
    def ahead(self) -> int:
        """What may be claimed although no slot is free, because more than a whole claim will start
        within a moment: half of that at least, or there would be many small claims."""
        if self._is_clogged() or len(self.waiting) > self._most:
            return 0
        soon = int(self._lively() * _AHEAD_SECONDS / max(self._run_seconds, _TICK))
        bound = min(soon, 2 * self._most)
        room = bound - len(self.waiting)
        return room if bound > self._most and 2 * room >= bound else 0

    @property
    def has_suspect(self) -> bool:
        return bool(self._suspects)

    def by_source(self) -> Mapping[str, int]:
        """A copy: a store may read it in a thread."""
        return dict(self._held_of)

    def hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim.id in self.held:  # an earlier run, lost or not settled yet
                self.let_go([self.held[claim.id]])
            self.held[claim.id] = claim
            self._held_of[claim.source] += 1
            if claim.unsettled >= SUSPECT:
                self._suspects.add(_key(claim))

    def let_go(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            held = self.held.get(claim.id)
            if held is not None and held.run == claim.run:  # a later run of it may be here already
                del self.held[claim.id]
                self._count_out(claim)

    def holds(self, claim: Claim) -> bool:
        return self.held.get(claim.id) is claim

    def takes(self, registration: Registration) -> bool:
        """No, when its handler is busy and enough of its events stand here already: they would keep
        the room of others."""
        return not self._is_full(registration) or len(self.passed) < 2 * self._count

    def put(self, claim: Claim, registration: Registration) -> None:
        """Queue a claim for a slot; a suspect comes first: if the process ends while a suspect
        waits, that counts as its own doing."""
        self._of_source.setdefault(claim.source, 0)
        if claim.unsettled >= SUSPECT:
            self.waiting.appendleft((claim, registration))
        else:
            self.waiting.append((claim, registration))

    def fill(self) -> None:
        """Start what waits, oldest first, while there are slots; a handler at its limit is passed
        by, and comes first when it has room again."""
        if self.passed:
            self.waiting, self.passed = self.passed + self.waiting, deque()
        while self.waiting and len(self.runs) < self._count:
            claim, registration = self._next()
            if self._is_full(registration):
                self.passed.append((claim, registration))
            else:
                self._start(claim, registration)

    def lose(self, claims: Sequence[Claim]) -> None:
        self.let_go(claims)
        lost = {_key(claim) for claim in claims}
        self.waiting = deque(one for one in self.waiting if _key(one[0]) not in lost)
        self.passed = deque(one for one in self.passed if _key(one[0]) not in lost)
        for task, run in self.runs.items():
            if _key(run.claim) in lost:
                task.cancel()

    def abandon(self, task: Task) -> tuple[Run, float]:
        """Its slot goes to another; whatever it still does is not waited for."""
        run = self.runs.pop(task)
        return run, self._free(run)

    def empty_waiting(self) -> list[Claim]:
        claims = [claim for claim, _ in (*self.passed, *self.waiting)]
        self.passed.clear()
        self.waiting.clear()
        return claims

    def _next(self) -> tuple[Claim, Registration]:
        """The oldest of a source that has less than its half of the slots, if there is one: what a
        source has waiting here is in nobody's way (F24)."""
        first = self.waiting[0][0].source
        if len(self._of_source) > 1 and self._of_source[first] >= self._count // 2:
            for place, (claim, _) in enumerate(self.waiting):
                if claim.source != first and self._of_source[claim.source] < self._count // 2:
                    found = self.waiting[place]
                    del self.waiting[place]
                    return found
        return self.waiting.popleft()

    def _is_clogged(self) -> bool:
        """More has ended than the store takes: what is held must not grow without end."""
        ended = len(self.held) - len(self.waiting) - len(self.passed) - len(self.runs)
        return ended > 2 * max(self._most, self._count)

    def _is_full(self, registration: Registration) -> bool:
        most = registration.concurrency
        return most is not None and self._active[id(registration)] >= most

    def _lively(self) -> int:
        """The slots that are free, or have not been held for longer than a moment."""
        since = self._monotonic() - _AHEAD_SECONDS
        old = takewhile(lambda run: run.started < since, self.runs.values())  # oldest first
        return self._count - sum(1 for _ in old)

    def _start(self, claim: Claim, registration: Registration) -> None:
        if registration.concurrency is not None:
            self._active[id(registration)] += 1
        self._of_source[claim.source] += 1
        # `asyncio.create_task` looks for the loop (a system call in 3.11) and sets a name: a third
        # of what a task costs.
        task = self._loop.create_task(self._handle(claim, registration))
        self.runs[task] = Run(claim, registration, self._monotonic())
        # Not in the run itself: one that is cancelled before its first step never gets there.
        task.add_done_callback(self._end)

    def _end(self, task: Task) -> None:
        run = self.runs.pop(task, None)
        if run is not None:  # else it was abandoned
            self._ended(task, run, self._free(run))

    def _free(self, run: Run) -> float:
        """How long it had its slot."""
        if run.registration.concurrency is not None:
            self._active[id(run.registration)] -= 1
        self._of_source[run.claim.source] -= 1
        seconds = self._monotonic() - run.started
        self._run_seconds += (seconds - self._run_seconds) * _WEIGHT
        return seconds

    def _count_out(self, claim: Claim) -> None:
        self._held_of[claim.source] -= 1
        if not self._held_of[claim.source]:
            del self._held_of[claim.source]
        self._suspects.discard(_key(claim))


def _key(claim: Claim) -> Key:
    return claim.id, claim.run
