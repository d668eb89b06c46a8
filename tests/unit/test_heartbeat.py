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
from ackbox.telemetry import LoopBlocked, WorkerTrouble
from ackbox.worker import Heartbeat
from support.facts import Facts
from support.polling import eventually
from support.runs import ScriptedQueue, claim

LEASE = timedelta(milliseconds=150)


class Renewals(ScriptedQueue):
    def __init__(self) -> None:
        super().__init__()
        self.renewed: list[tuple[float, set[EventId]]] = []
        self.trouble: Exception | None = None
        self.hangs = False

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        assert threading.current_thread().name == "ackbox-heartbeat"
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        self.renewed.append((time.monotonic(), {claim.id for claim in claims}))
        return await super().renew(claims, lease=lease)


class Beating:
    def __init__(self) -> None:
        self.queue = Renewals()
        self.held: dict[EventId, Claim] = {}
        self.facts = Facts()
        self.lost: list[Claim] = []
        self.heard = asyncio.Event()
        self.heartbeat = Heartbeat(
            self.queue, self.held, lease=LEASE, lose=self.lose, observe=self.facts
        )

    def lose(self, claims: Sequence[Claim]) -> None:
        self.lost += claims
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


async def test_a_handler_that_blocks_the_event_loop_keeps_its_claim_and_is_named(
    beat: Beating,
) -> None:  # F19
    beat.hold(claim("a"))
    blocking_handler(lambda: len(beat.queue.renewed) >= 4 and bool(beat.facts.of(LoopBlocked)))
    assert beat.lost == []
    assert "blocking_handler" in beat.facts.of(LoopBlocked)[0].where
    assert "test_heartbeat.py" in beat.facts.of(LoopBlocked)[0].where


def blocking_handler(until: object) -> None:
    """Blocks the loop; the heartbeat's thread goes on."""
    eventually(until, within=10)  # type: ignore[arg-type]


async def test_a_loop_that_answers_is_not_named(beat: Beating) -> None:
    beat.hold(claim("a"))
    await asyncio.to_thread(eventually, lambda: len(beat.queue.renewed) >= 3)
    assert beat.facts.of(LoopBlocked) == []


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
    beat.queue.trouble = {"raises": Unavailable("gone"), "a bug": ValueError("x")}.get(how)
    beat.queue.hangs = how == "hangs"
    await asyncio.wait_for(beat.heard.wait(), 5)
    assert time.monotonic() - max(last, beat.queue.renewed[-1][0]) < LEASE.total_seconds()
    assert [one.id for one in beat.lost] == ["a"]
    assert beat.facts.of(WorkerTrouble)


async def test_one_failed_renewal_stops_nobody(beat: Beating) -> None:
    beat.hold(claim("a"))
    await asyncio.to_thread(eventually, lambda: beat.queue.renewed)
    beat.queue.trouble = Unavailable("for a moment")
    await asyncio.to_thread(eventually, lambda: beat.facts.of(WorkerTrouble), every=0.001)
    beat.queue.trouble = None
    seen = len(beat.queue.renewed)
    await asyncio.to_thread(eventually, lambda: len(beat.queue.renewed) > seen)
    assert beat.lost == []
