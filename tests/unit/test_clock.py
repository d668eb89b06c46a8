"""The clock of a process does not jump when the machine's clock is set (F25)."""

from datetime import timedelta
from itertools import pairwise

import pytest

from ackbox.clock import ClockSteps, SteadyClock, uptime
from support.ledgers.events import NOON
from support.time.clocks import ManualClock

HOUR = timedelta(hours=1)


class Machine:
    """A machine whose wall clock can be set, but whose uptime cannot."""

    def __init__(self) -> None:
        self.wall = ManualClock()
        self.up = 1000.0

    def run(self, seconds: float) -> None:
        self.up += seconds
        self.wall.advance(seconds=seconds)

    def set_clock(self, by: timedelta) -> None:
        self.wall.now += by

    def clock(self) -> SteadyClock:
        return SteadyClock(self.wall, lambda: self.up)


def test_the_clock_shows_the_time_of_the_machine() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock() == NOON
    machine.run(12.5)
    assert clock() == NOON + timedelta(seconds=12.5)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_setting_the_wall_clock_neither_ends_a_lease_nor_delays_anything(
    step: timedelta,
) -> None:  # F25
    machine = Machine()
    clock = machine.clock()
    before = clock()
    machine.set_clock(step)
    assert clock() == before
    machine.run(10)
    assert timedelta(seconds=7.5) <= clock() - before <= timedelta(seconds=12.5)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_the_clock_is_right_again_after_four_times_the_step(step: timedelta) -> None:  # F25
    machine = Machine()
    clock = machine.clock()
    machine.set_clock(step)
    for _ in range(4 * 60):
        assert clock() != machine.wall()
        machine.run(60)
    assert clock() == machine.wall()
    machine.run(1)
    assert clock() == machine.wall()


def test_the_clock_never_goes_back() -> None:  # F25
    machine = Machine()
    clock = machine.clock()
    times = [clock()]
    for n in range(200):
        machine.run(0.001 * (n % 7))
        machine.set_clock(timedelta(seconds=(-1) ** n * n))
        times.append(clock())
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_time_in_which_the_machine_sleeps_counts() -> None:  # F25
    machine = Machine()
    clock = machine.clock()
    machine.run(8 * 3600)
    assert clock() == machine.wall()


def test_a_step_of_the_wall_clock_is_reported_once() -> None:  # F25
    machine = Machine()
    steps = ClockSteps(machine.wall, lambda: machine.up)
    machine.run(100)
    assert steps() == pytest.approx(0)
    machine.set_clock(-HOUR)
    machine.run(1)
    assert steps() == pytest.approx(-3600)
    machine.run(1)
    assert steps() == pytest.approx(0)


def test_uptime_never_decreases() -> None:
    assert 0 < uptime() <= uptime()
