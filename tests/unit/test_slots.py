"""How far ahead a worker claims, and in which order its slots take what waits."""

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

    def __init__(self, count: int = 10, most: int = 100) -> None:
        self.now = 0.0
        self.ran: list[Claim] = []
        self.slots = Slots(count, most, self.run, lambda *_: None, lambda: self.now)
        self._ends = asyncio.Event()
        self._registration = registration(handler)

    async def run(self, claim: Claim, _: Registration) -> Outcome:
        self.ran.append(claim)
        await self._ends.wait()
        return Done()

    def put(self, *claims: Claim) -> None:
        for one in claims:
            self.slots.put(one, self._registration)

    async def start(self) -> None:
        self.slots.fill()
        await asyncio.sleep(0)

    async def end(self, *, after: float) -> None:
        """Of all that run."""
        self.now += after
        self._ends.set()
        while self.slots.runs:  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0)
        self._ends.clear()

    async def runs(self, count: int, *, seconds: float) -> None:
        for n in range(count):
            self.put(claim(f"e{n}"))
            await self.start()
            await self.end(after=seconds)


async def test_a_worker_that_knows_nothing_claims_twice_its_free_slots() -> None:
    assert Stage().slots.room == 20


async def test_slow_handlers_are_claimed_for_twice_the_free_slots() -> None:
    stage = Stage()
    await stage.runs(50, seconds=1.0)
    assert stage.slots.room == 20
    stage.put(*(claim(f"w{n}") for n in range(4)))
    await stage.start()
    assert stage.slots.room == 12


async def test_quick_handlers_are_claimed_for_as_far_ahead_as_a_moment() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.01)
    assert 45 <= stage.slots.room <= 50
    await stage.runs(100, seconds=0.0)
    assert stage.slots.room == 100


async def test_what_waits_here_counts_against_the_next_claim() -> None:
    stage = Stage(count=1)
    await stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"w{n}") for n in range(30)))
    assert stage.slots.room == 70


async def test_hanging_handlers_are_not_claimed_for_however_quick_others_were() -> None:
    stage = Stage(count=2)
    await stage.runs(100, seconds=0.0)
    stage.put(claim("hangs"), claim("hangs too"))
    await stage.start()
    assert stage.slots.room <= 0


async def test_what_waits_of_one_source_is_in_no_others_way() -> None:  # F24
    stage = Stage(count=4)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    stage.put(claim("y0", source="y"), claim("y1", source="y"))
    await stage.start()
    assert [one.id for one in stage.ran] == ["x0", "x1", "y0", "y1"]


async def test_a_source_alone_has_all_slots() -> None:
    stage = Stage(count=4)
    stage.put(claim("y", source="y"))
    await stage.start()
    await stage.end(after=1.0)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    await stage.start()
    assert [one.id for one in stage.ran] == ["y", "x0", "x1", "x2", "x3"]


async def test_two_handlers_of_one_name_have_a_limit_each() -> None:
    def make() -> Any:
        async def handle(event: Event) -> None:
            """Never called here."""

        return handle

    stage = Stage(count=4)
    one, other = (registration(make(), concurrency=1) for _ in range(2))
    stage.slots.put(claim("a"), one)
    stage.slots.put(claim("b"), other)
    stage.slots.put(claim("c"), one)
    await stage.start()
    assert [run.id for run in stage.ran] == ["a", "b"]


async def test_what_each_source_holds_is_counted() -> None:
    slots = Stage().slots
    x0, x1, y = claim("x0", source="x"), claim("x1", source="x"), claim("y", source="y")
    slots.hold([x0, x1, y])
    before = slots.by_source()
    slots.let_go([x0, y])
    slots.let_go([x0])
    assert before == {"x": 2, "y": 1}
    assert slots.by_source() == {"x": 1}


async def test_a_later_run_takes_the_place_of_an_earlier_one() -> None:
    slots = Stage().slots
    old, new = claim("a", run=1, unsettled=2), claim("a", run=2)
    slots.hold([old])
    slots.hold([new])
    slots.let_go([old])
    assert slots.held == {"a": new}
    assert slots.by_source() == {"webhooks": 1}
    assert slots.room == 20


async def test_a_suspect_takes_no_room_from_others() -> None:  # S9
    slots = Stage().slots
    suspect = claim("killer", unsettled=2)
    slots.hold([suspect, claim("innocent")])
    assert (slots.room, slots.has_suspect) == (20, True)
    slots.let_go([suspect])
    assert (slots.room, slots.has_suspect) == (20, False)


async def test_nothing_is_claimed_while_the_store_takes_no_ends() -> None:
    """What has ended and is not settled would grow without end, and run again after a crash."""
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    ended = [claim(f"ended{n}") for n in range(201)]
    stage.slots.hold(ended)
    assert stage.slots.room == stage.slots.ahead == 0
    stage.slots.let_go(ended[:1])
    assert stage.slots.room == 100
    assert stage.slots.ahead == 200


async def test_quick_handlers_are_claimed_for_before_a_slot_is_free() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"r{n}") for n in range(10)))
    await stage.start()
    stage.put(*(claim(f"w{n}") for n in range(60)))
    assert stage.slots.room <= 0
    assert stage.slots.ahead == 140
    stage.put(*(claim(f"x{n}") for n in range(40)))
    assert stage.slots.ahead == 100
    stage.put(claim("one too many"))
    assert stage.slots.ahead == 0


async def test_handlers_that_take_a_while_are_not_claimed_for_before_a_slot_is_free() -> None:
    stage = Stage()
    await stage.runs(100, seconds=0.0)
    await stage.runs(100, seconds=0.005)
    assert stage.slots.ahead == 0


async def test_slots_where_handlers_hang_start_nothing_soon() -> None:
    stage = Stage()
    await stage.runs(200, seconds=0.002)
    assert stage.slots.ahead == 200
    stage.put(*(claim(f"hangs{n}") for n in range(4)))
    await stage.start()
    stage.now += 1.0
    assert 140 <= stage.slots.ahead <= 150
    stage.put(*(claim(f"hangs too{n}") for n in range(6)))
    await stage.start()
    stage.now += 1.0
    assert stage.slots.ahead == 0
