"""How many events a worker claims, and in which order its slots start the waiting claims."""

import asyncio
from typing import Any

from ackbox.handlers import Event, Registration
from ackbox.model import Claim, Done, Outcome
from ackbox.worker.slots import Slots
from support.runs import claim, registration


async def handler(event: Event) -> None:
    """Never called here."""


class Stage:
    """Slots whose runs take as long as a test says."""

    def __init__(self, count: int = 10, batch: int = 100) -> None:
        self.now = 0.0
        self.ran: list[Claim] = []
        self.slots = Slots(count, batch, self.run, lambda *_: None, lambda: self.now)
        self._ends = asyncio.Event()
        self._registration = registration(handler)

    async def run(self, claim: Claim, _: Registration) -> Outcome:
        self.ran.append(claim)
        await self._ends.wait()
        return Done()

    def put(self, *claims: Claim) -> None:
        for claimed in claims:
            self.slots.enqueue(claimed, self._registration)

    async def start(self) -> None:
        self.slots.fill()
        await asyncio.sleep(0)

    async def end(self, *, after: float) -> None:
        """End all runs."""
        self.now += after
        self._ends.set()
        while self.slots.runs:  # noqa: ASYNC110 - the end of a run has no event
            await asyncio.sleep(0)
        self._ends.clear()

    async def runs(self, count: int, *, seconds: float) -> None:
        for n in range(count):
            self.put(claim(f"e{n}"))
            await self.start()
            await self.end(after=seconds)


async def test_before_the_first_run_twice_the_free_slots_are_claimed() -> None:
    assert Stage().slots.capacity == 20


async def test_slow_handlers_are_claimed_for_twice_the_free_slots() -> None:
    stage = Stage()
    await stage.runs(50, seconds=1.0)
    assert stage.slots.capacity == 20
    stage.put(*(claim(f"w{n}") for n in range(4)))
    await stage.start()
    assert stage.slots.capacity == 12


async def test_for_quick_handlers_the_claim_covers_the_next_moment() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.01)
    assert 45 <= stage.slots.capacity <= 50
    await stage.runs(100, seconds=0.0)
    assert stage.slots.capacity == 100


async def test_waiting_claims_reduce_the_next_claim() -> None:
    stage = Stage(count=1)
    await stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"w{n}") for n in range(30)))
    assert stage.slots.capacity == 70


async def test_nothing_is_claimed_for_slots_whose_handlers_hang() -> None:
    stage = Stage(count=2)
    await stage.runs(100, seconds=0.0)
    stage.put(claim("hangs"), claim("hangs too"))
    await stage.start()
    assert stage.slots.capacity <= 0


async def test_the_waiting_claims_of_one_source_do_not_delay_another() -> None:  # F24
    stage = Stage(count=4)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    stage.put(claim("y0", source="y"), claim("y1", source="y"))
    await stage.start()
    assert [ran.id for ran in stage.ran] == ["x0", "x1", "y0", "y1"]


async def test_a_source_alone_gets_all_slots() -> None:
    stage = Stage(count=4)
    stage.put(claim("y", source="y"))
    await stage.start()
    await stage.end(after=1.0)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    await stage.start()
    assert [ran.id for ran in stage.ran] == ["y", "x0", "x1", "x2", "x3"]


async def test_two_handlers_with_one_name_have_separate_limits() -> None:
    def make() -> Any:
        async def handle(event: Event) -> None:
            """Never called here."""

        return handle

    stage = Stage(count=4)
    first, second = (registration(make(), concurrency=1) for _ in range(2))
    stage.slots.enqueue(claim("a"), first)
    stage.slots.enqueue(claim("b"), second)
    stage.slots.enqueue(claim("c"), first)
    await stage.start()
    assert [run.id for run in stage.ran] == ["a", "b"]


async def test_held_claims_are_counted_by_source() -> None:
    slots = Stage().slots
    x0, x1, y = claim("x0", source="x"), claim("x1", source="x"), claim("y", source="y")
    slots.hold([x0, x1, y])
    before = slots.held_by_source()
    slots.drop([x0, y])
    slots.drop([x0])
    assert before == {"x": 2, "y": 1}
    assert slots.held_by_source() == {"x": 1}


async def test_a_later_run_replaces_an_earlier_one() -> None:
    slots = Stage().slots
    old, new = claim("a", run=1, unsettled=2), claim("a", run=2)
    slots.hold([old])
    slots.hold([new])
    slots.drop([old])
    assert slots.held == {"a": new}
    assert slots.held_by_source() == {"webhooks": 1}
    assert slots.capacity == 20


async def test_a_suspect_does_not_reduce_the_capacity() -> None:  # S9
    slots = Stage().slots
    suspect = claim("killer", unsettled=2)
    slots.hold([suspect, claim("innocent")])
    assert (slots.capacity, slots.has_suspect) == (20, True)
    slots.drop([suspect])
    assert (slots.capacity, slots.has_suspect) == (20, False)


async def test_nothing_is_claimed_while_settling_lags() -> None:
    """Unsettled outcomes would accumulate without bound, and run again after a crash."""
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    ended = [claim(f"ended{n}") for n in range(201)]
    stage.slots.hold(ended)
    assert stage.slots.capacity == stage.slots.prefetch == 0
    stage.slots.drop(ended[:1])
    assert stage.slots.capacity == 100
    assert stage.slots.prefetch == 200


async def test_quick_handlers_are_prefetched_for() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"r{n}") for n in range(10)))
    await stage.start()
    stage.put(*(claim(f"w{n}") for n in range(60)))
    assert stage.slots.capacity <= 0
    assert stage.slots.prefetch == 140
    stage.put(*(claim(f"x{n}") for n in range(40)))
    assert stage.slots.prefetch == 100
    stage.put(claim("one too many"))
    assert stage.slots.prefetch == 0


async def test_slower_handlers_are_not_prefetched_for() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    await stage.runs(100, seconds=0.005)
    assert stage.slots.prefetch == 0


async def test_slots_whose_handlers_hang_reduce_the_prefetch() -> None:
    stage = Stage()
    await stage.runs(200, seconds=0.002)
    assert stage.slots.prefetch == 200
    stage.put(*(claim(f"hangs{n}") for n in range(4)))
    await stage.start()
    stage.now += 1.0
    assert 140 <= stage.slots.prefetch <= 150
    stage.put(*(claim(f"hangs too{n}") for n in range(6)))
    await stage.start()
    stage.now += 1.0
    assert stage.slots.prefetch == 0
