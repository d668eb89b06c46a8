"""The one-second ticker: gauges, clock, disk, and whether writes succeed again."""

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from ackbox.errors import Unavailable
from ackbox.maintenance import Monitor
from ackbox.model import Stats, Status
from ackbox.telemetry import ClockStepped, Measured
from support.ledgers.events import noon
from support.ledgers.facts import Facts

STATS = Stats(dict.fromkeys(Status, 3), None)


class ScriptedStore:
    """Store and reader in one, as far as the monitor needs them."""

    def __init__(self) -> None:
        self.unavailable_reason: str | None = None
        self.counts = self.proofs = 0
        self.broken = False

    async def waiting(self, now: datetime) -> int:
        self.counts += 1
        return 7

    async def prove_writable(self) -> None:
        if self.broken:
            raise Unavailable("Still broken.")
        self.proofs += 1

    async def stats(self, now: datetime) -> Stats:
        return STATS

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the monitor does not need {name}")


class Scene:
    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.facts = Facts()
        self.failing = False
        self.recorded = 3
        self.recounts: list[tuple[int, int]] = []
        self.clock_step = 0.0
        self.slept: list[float] = []
        store: Any = self.store
        self.monitor = Monitor(
            store,
            store,
            self,
            clock=noon,
            clock_steps=lambda: self.clock_step,
            observe=self.facts,
            sleep=self._sleep,
        )

    @property
    def buffered(self) -> tuple[int, int]:
        return 5, 600

    def note_writable(self) -> None:
        self.failing = False

    def recount(self, waiting: int, recorded_before: int) -> None:
        self.recounts.append((waiting, recorded_before))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 3:
            raise asyncio.CancelledError


async def test_a_tick_measures_and_recounts() -> None:  # W15
    scene = Scene()
    await scene.monitor.tick()
    assert scene.facts == [Measured(STATS, 5, 600)]
    assert scene.store.proofs == 0
    assert scene.recounts == [(7, 3)]  # W7


@pytest.mark.parametrize("seconds", [-3600.0, 31.0])
async def test_a_clock_that_was_set_is_reported(seconds: float) -> None:  # F25
    scene = Scene()
    scene.clock_step = seconds
    await scene.monitor.tick()
    assert scene.facts.of(ClockStepped) == [ClockStepped(seconds)]


async def test_a_small_correction_of_the_clock_is_not_reported() -> None:  # F25
    scene = Scene()
    scene.clock_step = -29.0
    await scene.monitor.tick()
    assert scene.facts.of(ClockStepped) == []


async def test_a_failure_ends_only_when_a_write_succeeds() -> None:  # L9
    scene = Scene()
    scene.failing = scene.store.broken = True
    with pytest.raises(Unavailable):
        await scene.monitor.tick()
    assert scene.failing
    assert scene.facts == [Measured(STATS, 5, 600)]  # the gauges are still measured
    scene.store.broken = False
    await scene.monitor.tick()
    assert not scene.failing
    assert scene.store.proofs == 1


async def test_a_small_write_does_not_end_the_failure_of_a_full_disk() -> None:  # F9
    scene = Scene()
    scene.failing = True
    scene.store.unavailable_reason = "The disk is nearly full."
    await scene.monitor.tick()
    assert scene.failing
    scene.store.unavailable_reason = None
    await scene.monitor.tick()
    assert not scene.failing


async def test_the_monitor_continues_while_the_store_is_unavailable() -> None:
    scene = Scene()
    scene.failing = scene.store.broken = True
    with suppress(asyncio.CancelledError):
        while True:
            await scene.monitor.tick_and_wait()
    assert scene.slept == [1.0, 1.0, 1.0]
    assert scene.store.counts == 3
