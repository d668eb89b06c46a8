"""Leases are renewed whatever the event loop does; if they cannot be, runs are stopped in time."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest

from ackbox.errors import Unavailable
from ackbox.model import Claim, EventId
from ackbox.telemetry import ServiceFailed, WorkerCallFailed
from ackbox.worker import Heartbeat
from ackbox.worker.heartbeat import NOT_RENEWED
from support.facts import Facts
from support.polling import eventually
from support.runs import ScriptedQueue, claim
from support.supervisor import supervisor

LEASE = timedelta(milliseconds=150)


class Renewals(ScriptedQueue):
    def __init__(self) -> None:
        super().__init__()
        self.renewed: list[tuple[float, set[EventId]]] = []
        self.unavailable_reason: Exception | None = None
        self.hangs = False

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        assert threading.current_thread().name == "ackbox-heartbeat"
        if self.hangs:
            await asyncio.Event().wait()
        if self.unavailable_reason is not None:
            raise self.unavailable_reason
        self.renewed.append((time.monotonic(), {claim.id for claim in claims}))
        return await super().renew(claims, lease=lease)


class Beating:
    def __init__(self) -> None:
        self.queue = Renewals()
        self.held: dict[EventId, Claim] = {}
        self.facts = Facts()
        self.lost: list[Claim] = []
        self.reasons: list[str] = []
        self.heard = asyncio.Event()
        self.heartbeat = Heartbeat(
            self.queue,
            self.held,
            lease=LEASE,
            lose=self.lose,
            observe=self.facts,
            service=supervisor(self.facts).add("heartbeat"),
        )

    def lose(self, claims: Sequence[Claim], reason: str) -> None:
        self.lost += claims
        self.reasons.append(reason)
        self.heard.set()

    def hold(self, *claims: Claim) -> None:
        self.held.update({claim.id: claim for claim in claims})


@asynccontextmanager
async def beating() -> AsyncIterator[Beating]:
    made = Beating()
    yield made
    made.heartbeat.stop()
    await asyncio.to_thread(made.heartbeat._thread.join, 5)
    assert not made.heartbeat._thread.is_alive()


@pytest.fixture
async def beat() -> AsyncIterator[Beating]:
    async with beating() as made:
        yield made


async def test_what_is_held_is_renewed_thrice_a_lease(beat: Beating) -> None:  # F19
    beat.hold(claim("a"), claim("b"))
    await asyncio.to_thread(eventually, lambda: len(beat.queue.renewed) >= 4)
    times = [moment for moment, _ in beat.queue.renewed]
    assert all(ids == {"a", "b"} for _, ids in beat.queue.renewed)
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    assert gaps[0] >= LEASE.total_seconds() / 3 * 0.5
    assert beat.lost == []


async def test_a_handler_that_blocks_the_event_loop_keeps_its_claim(beat: Beating) -> None:  # F19
    beat.hold(claim("a"))
    eventually(lambda: len(beat.queue.renewed) >= 4, within=10)  # on the event loop: it is blocked
    assert beat.lost == []


async def test_a_thread_without_an_event_loop_tries_again(
    beat: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:  # S26
    """As when the process has no file descriptor left."""
    failures = iter([OSError(24, "Too many open files")] * 2)
    real = asyncio.Runner

    def runner() -> asyncio.Runner:
        if (error := next(failures, None)) is not None:
            raise error
        return real()

    monkeypatch.setattr(asyncio, "Runner", runner)
    async with beating() as second:
        second.hold(claim("a"))
        await asyncio.to_thread(eventually, lambda: second.queue.renewed)
        assert len(second.facts.of(ServiceFailed)) == 2


async def test_a_claim_that_no_longer_holds_is_told_once_it_is_known(beat: Beating) -> None:  # F17
    lost = claim("a", run=3)
    beat.queue.lost.add((lost.id, 3))
    beat.hold(lost, claim("b"))
    await asyncio.wait_for(beat.heard.wait(), 5)
    assert beat.lost[0] == lost
    assert {one.id for one in beat.lost} == {"a"}


@pytest.mark.parametrize("how", ["raises", "hangs", "a bug"])
async def test_when_renewal_fails_runs_are_stopped_before_their_lease_ends(
    beat: Beating, how: str
) -> None:  # F20
    beat.hold(claim("a"))
    await asyncio.to_thread(eventually, lambda: beat.queue.renewed)
    last = beat.queue.renewed[-1][0]
    beat.queue.unavailable_reason = {"raises": Unavailable("gone"), "a bug": ValueError("x")}.get(
        how
    )
    beat.queue.hangs = how == "hangs"
    await asyncio.wait_for(beat.heard.wait(), 5)
    assert time.monotonic() - max(last, beat.queue.renewed[-1][0]) < LEASE.total_seconds()
    assert [one.id for one in beat.lost] == ["a"]
    assert beat.reasons == [NOT_RENEWED]
    assert beat.facts.of(ServiceFailed if how == "a bug" else WorkerCallFailed)


async def test_one_failed_renewal_stops_nobody(beat: Beating) -> None:
    beat.hold(claim("a"))
    await asyncio.to_thread(eventually, lambda: beat.queue.renewed)
    beat.queue.unavailable_reason = Unavailable("for a moment")
    await asyncio.to_thread(eventually, lambda: beat.facts.of(WorkerCallFailed), every=0.001)
    beat.queue.unavailable_reason = None
    seen = len(beat.queue.renewed)
    await asyncio.to_thread(eventually, lambda: len(beat.queue.renewed) > seen)
    assert beat.lost == []
