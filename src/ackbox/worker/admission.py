"""Admission: how many events to claim, and which held claim starts next.

This module is pure: claims, registrations and times come in, decisions go out. It knows neither the
event loop nor the store. `worker.py` acts on its decisions.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Generic, TypeVar

from msgspec import Struct

from ackbox.handlers import Registration
from ackbox.model import SUSPECT, Caps, Claim, EventId

LOOK_AHEAD_SECONDS = 0.05
_WEIGHT = 0.1
_SHORTEST_RUN = 1e-6

Task = TypeVar("Task", bound=Hashable)
"""The caller's own handle of a run."""
Waiting = deque[tuple[Claim, Registration]]


class Run(Struct, frozen=True):
    claim: Claim
    registration: Registration
    started: float


class Admission(Generic[Task]):
    """The claims that one worker holds, and the slots in which they run.

    `held` contains every claim of this worker until the claim is settled. Other threads may read
    it. `waiting` contains the claims that wait for a slot, `blocked` those whose handler is at its
    concurrency limit, and `runs` those that run.
    """

    def __init__(self, count: int, batch: int, sources: AbstractSet[str]) -> None:
        self.held: dict[EventId, Claim] = {}
        self.waiting: Waiting = deque()
        self.blocked: Waiting = deque()
        self.runs: dict[Task, Run] = {}
        self._count = count
        self._batch = batch
        self._sources = set(sources)
        self._held_by_source: Counter[str] = Counter()
        self._suspects: set[tuple[EventId, int]] = set()
        self._running_by_handler: Counter[int] = Counter()  # by id: two handlers may share a name
        self._running_by_source: Counter[str] = Counter()  # a source stays, with 0
        self._run_seconds = LOOK_AHEAD_SECONDS

    def room(self) -> int:
        """Return how many events to claim now for the free slots; 0 or less means none.

        The number is twice the free slots, or the number of runs that the free slots will start
        within `LOOK_AHEAD_SECONDS` if that is more. So quick handlers need few claim statements,
        and this process holds few claims that wait while another process could run them.
        """
        if self._settling_lags():
            return 0
        free = self._count - len(self.runs)
        return max(2 * free, min(self._runs_soon(free), self._batch)) - len(self.waiting)

    def room_ahead(self, now: float) -> int:
        """Return how many events to claim before the waiting claims start to run; 0 means none.

        Claiming ahead is worthwhile when more than one batch of runs will start within
        `LOOK_AHEAD_SECONDS`, and when the claim can take at least half as many events as there will
        be runs: otherwise there would be many small claims.
        """
        if self._settling_lags():
            return 0
        limit = min(self._runs_soon(self._quick_slots(now)), 2 * self._batch)
        missing = limit - len(self.waiting)
        return missing if limit > self._batch and 2 * missing >= limit else 0

    def caps(self) -> Caps:
        """Return the limits of a claim. If several sources are known but only one of them has due
        events, that source may use all slots but one. The last slot stays free for the other
        sources (F24)."""
        count = self._count
        alone = count - 1 if count > 1 and len(self._sources) > 1 else None
        held = dict(self._held_by_source)  # a copy, because a store may read it in another thread
        return Caps(share=max(count // 2, 1), held=held, alone=alone)

    @property
    def has_suspect(self) -> bool:
        return bool(self._suspects)

    def holds(self, claim: Claim) -> bool:
        return self.held.get(claim.id) is claim

    def hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim.id in self.held:  # an earlier run, lost or not settled yet
                self.drop([self.held[claim.id]])
            self.held[claim.id] = claim
            self._sources.add(claim.source)
            self._held_by_source[claim.source] += 1
            if claim.unsettled >= SUSPECT:
                self._suspects.add((claim.id, claim.run))

    def drop(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            held = self.held.get(claim.id)
            if held is None or held.run != claim.run:  # a later run may be held already
                continue
            del self.held[claim.id]
            self._suspects.discard((claim.id, claim.run))
            self._held_by_source[claim.source] -= 1
            if not self._held_by_source[claim.source]:
                del self._held_by_source[claim.source]

    def admit(self, claim: Claim, registration: Registration) -> bool:
        """Queue a held claim for a slot, a suspect before all others.

        Return False when the handler is at its concurrency limit and enough claims are blocked:
        more of them would crowd out other handlers. A suspect is always admitted, because a release
        would refund its attempt. It is the next to start: if the process ended while the suspect
        waited for a slot, the crash would count against an event that did not run.
        """
        if claim.unsettled >= SUSPECT:
            self.waiting.appendleft((claim, registration))
        elif len(self.blocked) >= 2 * self._count and self._is_at_limit(registration):
            return False
        else:
            self.waiting.append((claim, registration))
        self._running_by_source.setdefault(claim.source, 0)
        return True

    def take_startable(self) -> Iterator[tuple[Claim, Registration]]:
        """Remove and yield the waiting claims that may start, while slots are free. The caller has
        to `start` each before it takes the next.

        The claims of a handler at its concurrency limit are skipped, and wait in `blocked` until a
        run of such a handler ends.
        """
        while self.waiting and len(self.runs) < self._count:
            several = len(self._running_by_source) > 1
            entry = self._take_fairly() if several else self.waiting.popleft()
            if entry[1].concurrency is None or not self._is_at_limit(entry[1]):
                yield entry
            else:
                self.blocked.append(entry)

    def start(self, task: Task, claim: Claim, registration: Registration, now: float) -> None:
        """Give a slot to the run of this claim."""
        self.runs[task] = Run(claim, registration, now)
        self._running_by_source[claim.source] += 1
        if registration.concurrency is not None:
            self._running_by_handler[id(registration)] += 1

    def end(self, task: Task, now: float) -> Run | None:
        """Free the slot of a run and return the run; return None if it has no slot any more."""
        run = self.runs.pop(task, None)
        if run is None:
            return None
        self._running_by_source[run.claim.source] -= 1
        if run.registration.concurrency is not None:
            self._running_by_handler[id(run.registration)] -= 1
            self.waiting, self.blocked = self.blocked + self.waiting, deque()
        self._run_seconds += (now - run.started - self._run_seconds) * _WEIGHT
        return run

    def lose(self, claims: Sequence[Claim]) -> list[Task]:
        """Drop claims that another worker may hold by now; return the runs to cancel."""
        self.drop(claims)
        lost = {(claim.id, claim.run) for claim in claims}
        self.waiting = deque(entry for entry in self.waiting if not _is_in(lost, entry[0]))
        self.blocked = deque(entry for entry in self.blocked if not _is_in(lost, entry[0]))
        return [task for task, run in self.runs.items() if _is_in(lost, run.claim)]

    def clear_waiting(self) -> list[Claim]:
        claims = [claim for claim, _ in (*self.blocked, *self.waiting)]
        self.blocked.clear()
        self.waiting.clear()
        return claims

    def _take_fairly(self) -> tuple[Claim, Registration]:
        """Remove and return the oldest claim of a source that has less than half of the slots. If
        there is none, remove and return the oldest claim: no source starves another (F24)."""
        half, running = self._count // 2, self._running_by_source
        first = self.waiting[0][0].source
        if running[first] >= half:
            for index, (claim, _) in enumerate(self.waiting):
                if running[claim.source] < half:
                    entry = self.waiting[index]
                    del self.waiting[index]
                    return entry
        return self.waiting.popleft()

    def _is_at_limit(self, registration: Registration) -> bool:
        limit = registration.concurrency
        return limit is not None and self._running_by_handler[id(registration)] >= limit

    def _settling_lags(self) -> bool:
        """Return whether runs end faster than the store settles them: claiming then pauses, so that
        the number of held claims stays bounded."""
        ended = len(self.held) - len(self.waiting) - len(self.blocked) - len(self.runs)
        return ended > 2 * max(self._batch, self._count)

    def _runs_soon(self, slots: int) -> int:
        """Return how many runs these slots will start within `LOOK_AHEAD_SECONDS`."""
        return int(slots * LOOK_AHEAD_SECONDS / max(self._run_seconds, _SHORTEST_RUN))

    def _quick_slots(self, now: float) -> int:
        """Count the slots that are free or whose run is younger than `LOOK_AHEAD_SECONDS`."""
        since = now - LOOK_AHEAD_SECONDS
        old = takewhile(lambda run: run.started < since, self.runs.values())  # oldest first
        return self._count - sum(1 for _ in old)


def _is_in(keys: AbstractSet[tuple[EventId, int]], claim: Claim) -> bool:
    return (claim.id, claim.run) in keys
