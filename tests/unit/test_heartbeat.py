"""Leases are renewed whatever the event loop does. If renewal fails, runs are stopped in time."""

import asyncio
import threading
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
from ackbox.worker.heartbeat import NOT_RENEWED, TAKEN_OVER
from support.ledgers.facts import Facts
from support.time.clocks import SteppedThread
from support.time.supervisor import supervisor
from support.workers.runs import ScriptedQueue, claim

LEASE = timedelta(milliseconds=150)
BEAT = LEASE.total_seconds() / 3


class Renewals(ScriptedQueue):
    def __init__(self, thread: SteppedThread) -> None:
        super().__init__()
        self.renewed: list[tuple[float, set[EventId]]] = []
        self.error: Exception | None = None
        self.hangs = False
        self._thread = thread

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        assert threading.current_thread().name == "ackbox-heartbeat"
        if self.hangs:
            self._thread.now += BEAT  # the time-out of a renewal
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.renewed.append((self._thread.now, {claim.id for claim in claims}))
        return await super().renew(claims, lease=lease)


class Beating:
    """A heartbeat whose thread takes one step at a time."""

    def __init__(self) -> None:
        self.thread = SteppedThread()
        self.queue = Renewals(self.thread)
        self.held: dict[EventId, Claim] = {}
        self.facts = Facts()
        self.lost: list[Claim] = []
        self.reasons: list[str] = []
        self.heartbeat = Heartbeat(
            self.queue,
            self.held,
            lease=LEASE,
            lose=self.lose,
            observe=self.facts,
            service=supervisor(self.facts).add("heartbeat"),
            clock=self.thread.clock,
        )
        self.thread.await_wait()

    def lose(self, claims: Sequence[Claim], reason: str) -> None:
        self.lost += claims
        self.reasons.append(reason)

    def hold(self, *claims: Claim) -> None:
        self.held.update({claim.id: claim for claim in claims})

    async def beat(self) -> None:
        """Let a beat pass, then let the event loop call `lose`."""
        self.thread.step()
        await asyncio.sleep(0)


@asynccontextmanager
async def beating() -> AsyncIterator[Beating]:
    made = Beating()
    yield made
    made.heartbeat.stop()
    made.thread.release()
    await asyncio.to_thread(made.heartbeat._thread.join, 5)
    assert not made.heartbeat._thread.is_alive()


@pytest.fixture
async def beat() -> AsyncIterator[Beating]:
    async with beating() as made:
        yield made


async def test_held_claims_are_renewed_three_times_a_lease(beat: Beating) -> None:  # F19
    beat.hold(claim("a"), claim("b"))
    for _ in range(4):
        await beat.beat()
    times = [moment for moment, _ in beat.queue.renewed]
    assert all(ids == {"a", "b"} for _, ids in beat.queue.renewed)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([BEAT] * 3)
    assert beat.lost == []


async def test_a_handler_that_blocks_the_event_loop_keeps_its_claim(beat: Beating) -> None:  # F19
    beat.hold(claim("a"))
    for _ in range(4):
        beat.thread.step()  # on the event loop, which is blocked meanwhile
    assert len(beat.queue.renewed) == 4
    await asyncio.sleep(0)
    assert beat.lost == []


async def test_a_thread_without_an_event_loop_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # S26
    """The process has no file descriptor left."""
    failures = iter([OSError(24, "Too many open files")] * 2)
    real = asyncio.Runner

    def runner() -> asyncio.Runner:
        if (error := next(failures, None)) is not None:
            raise error
        return real()

    monkeypatch.setattr(asyncio, "Runner", runner)
    async with beating() as beat:
        beat.hold(claim("a"))
        for _ in range(3):
            await beat.beat()
        assert len(beat.facts.of(ServiceFailed)) == 2
        assert len(beat.queue.renewed) == 1


async def test_a_claim_that_was_taken_over_is_reported_as_lost(beat: Beating) -> None:  # F17
    lost = claim("a", run=3)
    beat.queue.lost.add((lost.id, 3))
    beat.hold(lost, claim("b"))
    await beat.beat()
    assert beat.lost == [lost]
    assert beat.reasons == [TAKEN_OVER]


@pytest.mark.parametrize("how", ["raises", "hangs", "a bug"])
async def test_when_renewal_fails_runs_are_stopped_before_their_lease_expires(
    beat: Beating, how: str
) -> None:  # F20
    beat.hold(claim("a"))
    await beat.beat()
    ((last_renewed, _),) = beat.queue.renewed
    beat.queue.error = {"raises": Unavailable("gone"), "a bug": ValueError("x")}.get(how)
    beat.queue.hangs = how == "hangs"
    while not beat.lost and beat.thread.now < 9.0:
        await beat.beat()
    assert beat.thread.now - last_renewed < LEASE.total_seconds()
    assert [lost.id for lost in beat.lost] == ["a"]
    assert beat.reasons == [NOT_RENEWED]
    assert beat.facts.of(ServiceFailed if how == "a bug" else WorkerCallFailed)


async def test_one_failed_renewal_stops_no_run(beat: Beating) -> None:
    beat.hold(claim("a"))
    await beat.beat()
    beat.queue.error = Unavailable("for a moment")
    await beat.beat()
    assert beat.facts.of(WorkerCallFailed)
    beat.queue.error = None
    await beat.beat()
    assert len(beat.queue.renewed) == 2
    assert beat.lost == []
