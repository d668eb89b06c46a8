"""How many events a worker claims, and in which order its slots start the waiting claims.

Nothing here runs: a test decides when a run starts and ends, and what time it is.
"""

from typing import Any

from ackbox.handlers import Event
from ackbox.model import Claim, EventId
from ackbox.worker.admission import Admission
from support.workers.runs import claim, registration


async def handler(event: Event) -> None:
    """Never called here."""


class Stage:
    """An admission whose runs take as long as a test says. An event's id is its task."""

    def __init__(self, count: int = 10, batch: int = 100) -> None:
        self.now = 0.0
        self.ran: list[EventId] = []
        self.admission: Admission[EventId] = Admission(count, batch, frozenset())
        self._registration = registration(handler)

    def put(self, *claims: Claim) -> None:
        for claimed in claims:
            assert self.admission.admit(claimed, self._registration)

    def start(self) -> None:
        for startable, its_registration in self.admission.take_startable():
            self.ran.append(startable.id)
            self.admission.start(startable.id, startable, its_registration, self.now)

    def end(self, *, after: float) -> None:
        """End all runs."""
        self.now += after
        for task in list(self.admission.runs):
            self.admission.end(task, self.now)

    def runs(self, count: int, *, seconds: float) -> None:
        for n in range(count):
            self.put(claim(f"e{n}"))
            self.start()
            self.end(after=seconds)

    @property
    def room(self) -> int:
        return self.admission.room()

    @property
    def room_ahead(self) -> int:
        return self.admission.room_ahead(self.now)


def test_before_the_first_run_twice_the_free_slots_are_claimed() -> None:
    assert Stage().room == 20


def test_slow_handlers_are_claimed_for_twice_the_free_slots() -> None:
    stage = Stage()
    stage.runs(50, seconds=1.0)
    assert stage.room == 20
    stage.put(*(claim(f"w{n}") for n in range(4)))
    stage.start()
    assert stage.room == 12


def test_for_quick_handlers_the_claim_covers_the_next_moment() -> None:
    stage = Stage()
    stage.runs(100, seconds=0.01)
    assert 45 <= stage.room <= 50
    stage.runs(100, seconds=0.0)
    assert stage.room == 100


def test_waiting_claims_reduce_the_next_claim() -> None:
    stage = Stage(count=1)
    stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"w{n}") for n in range(30)))
    assert stage.room == 70


def test_nothing_is_claimed_for_slots_whose_handlers_hang() -> None:
    stage = Stage(count=2)
    stage.runs(100, seconds=0.0)
    stage.put(claim("hangs"), claim("hangs too"))
    stage.start()
    assert stage.room <= 0


def test_the_waiting_claims_of_one_source_do_not_delay_another() -> None:  # F24
    stage = Stage(count=4)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    stage.put(claim("y0", source="y"), claim("y1", source="y"))
    stage.start()
    assert stage.ran == ["x0", "x1", "y0", "y1"]


def test_only_runs_that_have_not_ended_count_for_the_share_of_a_source() -> None:  # F24
    stage = Stage(count=4)
    stage.put(claim("x0", source="x"), claim("x1", source="x"))
    stage.start()
    stage.end(after=1.0)
    stage.put(claim("x2", source="x"), claim("x3", source="x"), claim("y", source="y"))
    stage.start()
    assert stage.ran == ["x0", "x1", "x2", "x3", "y"]


def test_a_source_alone_gets_all_slots() -> None:
    stage = Stage(count=4)
    stage.put(claim("y", source="y"))
    stage.start()
    stage.end(after=1.0)
    stage.put(*(claim(f"x{n}", source="x") for n in range(20)))
    stage.start()
    assert stage.ran == ["y", "x0", "x1", "x2", "x3"]


def test_two_handlers_with_one_name_have_separate_limits() -> None:
    def make() -> Any:
        async def handle(event: Event) -> None:
            """Never called here."""

        return handle

    stage = Stage(count=4)
    first, second = (registration(make(), concurrency=1) for _ in range(2))
    stage.admission.admit(claim("a"), first)
    stage.admission.admit(claim("b"), second)
    stage.admission.admit(claim("c"), first)
    stage.start()
    assert stage.ran == ["a", "b"]


def test_the_claims_of_a_handler_that_was_at_its_limit_start_before_later_ones() -> None:
    stage = Stage(count=4)
    limited = registration(handler, concurrency=1)
    stage.admission.admit(claim("a"), limited)
    stage.admission.admit(claim("b"), limited)
    stage.start()
    stage.put(claim("c"))
    stage.end(after=1.0)
    stage.start()
    assert stage.ran == ["a", "b", "c"]


def test_a_lost_claim_of_a_handler_at_its_limit_is_never_started() -> None:
    stage = Stage(count=4)
    limited, lost = registration(handler, concurrency=1), claim("b")
    stage.admission.admit(claim("a"), limited)
    stage.admission.admit(lost, limited)
    stage.start()
    assert stage.admission.lose([lost]) == []
    stage.end(after=1.0)
    stage.start()
    assert stage.ran == ["a"]


def test_held_claims_are_counted_by_source() -> None:
    admission = Stage().admission
    x0, x1, y = claim("x0", source="x"), claim("x1", source="x"), claim("y", source="y")
    admission.hold([x0, x1, y])
    before = admission.caps().held
    admission.drop([x0, y])
    admission.drop([x0])
    assert before == {"x": 2, "y": 1}
    assert admission.caps().held == {"x": 1}


def test_a_source_alone_leaves_a_slot_only_once_another_is_known() -> None:  # F24
    admission = Stage(count=4).admission
    assert admission.caps().alone is None
    admission.hold([claim("x", source="x")])
    assert admission.caps().alone is None
    admission.hold([claim("y", source="y")])
    assert admission.caps().alone == 3
    one_slot = Stage(count=1).admission
    one_slot.hold([claim("x", source="x"), claim("y", source="y")])
    assert (one_slot.caps().alone, one_slot.caps().share) == (None, 1)


def test_a_later_run_replaces_an_earlier_one() -> None:
    admission = Stage().admission
    old, new = claim("a", run=1, unsettled=2), claim("a", run=2)
    admission.hold([old])
    admission.hold([new])
    admission.drop([old])
    assert admission.held == {"a": new}
    assert admission.caps().held == {"webhooks": 1}
    assert admission.room() == 20


def test_a_suspect_does_not_reduce_the_capacity() -> None:  # S9
    admission = Stage().admission
    suspect = claim("killer", unsettled=2)
    admission.hold([suspect, claim("innocent")])
    assert (admission.room(), admission.has_suspect) == (20, True)
    admission.drop([suspect])
    assert (admission.room(), admission.has_suspect) == (20, False)


def test_nothing_is_claimed_while_settling_lags() -> None:
    """Unsettled outcomes would accumulate without bound, and run again after a crash."""
    stage = Stage()
    stage.runs(100, seconds=0.0)
    ended = [claim(f"ended{n}") for n in range(201)]
    stage.admission.hold(ended)
    assert stage.room == stage.room_ahead == 0
    stage.admission.drop(ended[:1])
    assert stage.room == 100
    assert stage.room_ahead == 200


def test_for_quick_handlers_the_next_claim_is_sent_ahead() -> None:
    stage = Stage()
    stage.runs(100, seconds=0.0)
    stage.put(*(claim(f"r{n}") for n in range(10)))
    stage.start()
    stage.put(*(claim(f"w{n}") for n in range(60)))
    assert stage.room <= 0
    assert stage.room_ahead == 140
    stage.put(*(claim(f"x{n}") for n in range(40)))
    assert stage.room_ahead == 100
    stage.put(claim("one too many"))
    assert stage.room_ahead == 0


def test_for_slower_handlers_no_claim_is_sent_ahead() -> None:
    stage = Stage()
    stage.runs(100, seconds=0.0)
    stage.runs(100, seconds=0.005)
    assert stage.room_ahead == 0


def test_slots_whose_handlers_hang_reduce_the_claim_that_is_sent_ahead() -> None:
    stage = Stage()
    stage.runs(200, seconds=0.002)
    assert stage.room_ahead == 200
    stage.put(*(claim(f"hangs{n}") for n in range(4)))
    stage.start()
    stage.now += 1.0
    assert 140 <= stage.room_ahead <= 150
    stage.put(*(claim(f"hangs too{n}") for n in range(6)))
    stage.start()
    stage.now += 1.0
    assert stage.room_ahead == 0
