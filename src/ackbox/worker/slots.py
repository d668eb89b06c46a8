"""What this worker holds: claims that wait for a slot, and runs that have one."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from ackbox.handlers import Registration
from ackbox.model import SUSPECT, Claim, EventId

Run = Callable[[Claim, Registration], Coroutine[Any, Any, None]]
Key = tuple[EventId, int]
Waiting = deque[tuple[Claim, Registration]]


class Slots:
    """`held` has every claim of ours until it is settled; other threads may read it."""

    def __init__(self, count: int, run: Run, freed: Callable[[], None]) -> None:
        self.held: dict[EventId, Claim] = {}
        self.tasks: dict[Key, asyncio.Task[None]] = {}
        self.waiting: Waiting = deque()
        self.passed: Waiting = deque()
        self._count = count
        self._run = run
        self._freed = freed
        self._active: Counter[str] = Counter()

    @property
    def room(self) -> int:
        """At most twice the free slots, so that little waits here that another could run."""
        if any(claim.unsettled >= SUSPECT for claim in self.held.values()):
            return 0  # a suspect runs alone
        room = 2 * (self._count - len(self.tasks)) - len(self.waiting)
        # A claim costs a statement on the only writer: while something waits, not for a few slots.
        return room if not self.waiting or room >= self._count else 0

    def by_source(self) -> Counter[str]:
        return Counter(claim.source for claim in self.held.values())

    def takes(self, registration: Registration) -> bool:
        """No, when its handler is busy and enough of its events stand here already: they would keep
        the room of others."""
        return not self._is_full(registration) or len(self.passed) < 2 * self._count

    def put(self, claim: Claim, registration: Registration) -> None:
        self.waiting.append((claim, registration))

    def fill(self) -> None:
        """Start what waits, oldest first, while there are slots; a handler at its limit is passed
        by, and comes first when it has room again."""
        if self.passed:
            self.waiting, self.passed = self.passed + self.waiting, deque()
        while self.waiting and len(self.tasks) < self._count:
            claim, registration = self.waiting.popleft()
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

    def empty_waiting(self) -> list[Claim]:
        claims = [claim for claim, _ in (*self.passed, *self.waiting)]
        self.passed.clear()
        self.waiting.clear()
        return claims

    def _is_full(self, registration: Registration) -> bool:
        most = registration.concurrency
        return most is not None and self._active[registration.name] >= most

    def _start(self, claim: Claim, registration: Registration) -> None:
        key = (claim.id, claim.run)
        self._active[registration.name] += 1
        task = asyncio.create_task(self._run(claim, registration))
        self.tasks[key] = task
        # Not in the run itself: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._free(key, registration))

    def _free(self, key: Key, registration: Registration) -> None:
        del self.tasks[key]
        self._active[registration.name] -= 1
        self._freed()


def _without(waiting: Waiting, claim: Claim) -> Waiting:
    return deque(item for item in waiting if (item[0].id, item[0].run) != (claim.id, claim.run))
