"""What this worker holds: claims that wait for a slot, and runs that have one."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from ackbox.handlers import Registration
from ackbox.model import SUSPECT, Claim, EventId

Run = Callable[[Claim, Registration], Coroutine[Any, Any, None]]
Key = tuple[EventId, int]
Waiting = deque[tuple[Claim, Registration]]

_AHEAD_SECONDS = 0.05
_WEIGHT = 0.1
_TICK = 1e-6


class Slots:
    """`held` has every claim of ours until it is settled; other threads may read it."""

    def __init__(
        self,
        count: int,
        most: int,
        run: Run,
        freed: Callable[[], None],
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.held: dict[EventId, Claim] = {}
        self.tasks: dict[Key, asyncio.Task[None]] = {}
        self.runs: dict[Key, tuple[Claim, Registration, float]] = {}
        self.waiting: Waiting = deque()
        self.passed: Waiting = deque()
        self._count = count
        self._most = most
        self._run = run
        self._monotonic = monotonic
        self._freed = freed
        self._active: Counter[int] = Counter()  # by handler: two may have one name
        self._of_source: Counter[str] = Counter()  # one that was ever here stays
        self._run_seconds = _AHEAD_SECONDS

    @property
    def room(self) -> int:
        """Twice the free slots, or what these will start within a moment if that is more, so
        that little waits here that another could run, and quick handlers share few claims."""
        if any(claim.unsettled >= SUSPECT for claim in self.held.values()):
            return 0  # a suspect runs alone
        free = self._count - len(self.tasks)
        soon = int(free * _AHEAD_SECONDS / max(self._run_seconds, _TICK))
        room = max(2 * free, min(soon, self._most)) - len(self.waiting)
        # A claim costs a statement on the only writer: while something waits, not for a few slots.
        return room if not self.waiting or room >= self._count else 0

    def by_source(self) -> Counter[str]:
        return Counter(claim.source for claim in self.held.values())

    def takes(self, registration: Registration) -> bool:
        """No, when its handler is busy and enough of its events stand here already: they would keep
        the room of others."""
        return not self._is_full(registration) or len(self.passed) < 2 * self._count

    def put(self, claim: Claim, registration: Registration) -> None:
        self._of_source.setdefault(claim.source, 0)
        self.waiting.append((claim, registration))

    def fill(self) -> None:
        """Start what waits, oldest first, while there are slots; a handler at its limit is passed
        by, and comes first when it has room again."""
        if self.passed:
            self.waiting, self.passed = self.passed + self.waiting, deque()
        while self.waiting and len(self.tasks) < self._count:
            claim, registration = self._next()
            if self._is_full(registration):
                self.passed.append((claim, registration))
            else:
                self._start(claim, registration)

    def let_go(self, claim: Claim) -> None:
        held = self.held.get(claim.id)
        if held is not None and held.run == claim.run:  # a later run of it may be here already
            del self.held[claim.id]

    def lose(self, claim: Claim) -> None:
        self.let_go(claim)
        self.waiting = _without(self.waiting, claim)
        self.passed = _without(self.passed, claim)
        if (task := self.tasks.get((claim.id, claim.run))) is not None:
            task.cancel()

    def abandon(self, claim: Claim) -> None:
        """Its slot goes to another; whatever it still does is not waited for."""
        registration, started = self.runs[claim.id, claim.run][1:]
        self._free(claim, registration, started)

    def has(self, claim: Claim) -> bool:
        return (claim.id, claim.run) in self.tasks

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

    def _is_full(self, registration: Registration) -> bool:
        most = registration.concurrency
        return most is not None and self._active[id(registration)] >= most

    def _start(self, claim: Claim, registration: Registration) -> None:
        key = (claim.id, claim.run)
        if registration.concurrency is not None:
            self._active[id(registration)] += 1
        self._of_source[claim.source] += 1
        started = self._monotonic()
        task = asyncio.create_task(self._run(claim, registration))
        self.tasks[key] = task
        self.runs[key] = (claim, registration, started)
        # Not in the run itself: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._free(claim, registration, started))

    def _free(self, claim: Claim, registration: Registration, started: float) -> None:
        if self.tasks.pop((claim.id, claim.run), None) is None:
            return  # it was abandoned
        del self.runs[claim.id, claim.run]
        if registration.concurrency is not None:
            self._active[id(registration)] -= 1
        self._of_source[claim.source] -= 1
        self._run_seconds += ((self._monotonic() - started) - self._run_seconds) * _WEIGHT
        self._freed()


def _without(waiting: Waiting, claim: Claim) -> Waiting:
    return deque(item for item in waiting if (item[0].id, item[0].run) != (claim.id, claim.run))
