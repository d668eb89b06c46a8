"""Which tasks are reported as overdue, and how many timers that takes."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from ackbox.telemetry import ServiceFailed, ServiceRecovered, ServiceStarted
from ackbox.worker.deadlines import Deadlines
from support.ledgers.facts import Facts
from support.time.clocks import ManualTimers
from support.time.supervisor import supervisor

SECOND = timedelta(seconds=1)


class Stage(ManualTimers):
    def __init__(self) -> None:
        super().__init__()
        self.overdue: list[str] = []
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.deadlines = Deadlines(
            lambda task: self.overdue.append(task.get_name()), timers=self.as_timers
        )

    def start(self, name: str, allowed: timedelta = SECOND) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks[name] = asyncio.create_task(_wait(waiting), name=name)
        self.deadlines.start(self.tasks[name], allowed)

    def end(self, name: str, allowed: timedelta = SECOND) -> bool:
        return self.deadlines.end(self.tasks[name], allowed)


async def _wait(waiting: "asyncio.Future[None]") -> None:
    await waiting


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    for task in made.tasks.values():
        task.cancel()
    await asyncio.gather(*made.tasks.values(), return_exceptions=True)


async def test_each_task_is_overdue_at_its_own_time_in_the_order_of_starting(stage: Stage) -> None:
    for n in range(3):
        stage.move_to(n / 10)
        stage.start(f"t{n}")
    stage.move_to(0.99)
    assert stage.overdue == []
    stage.move_to(1.0)
    assert stage.overdue == ["t0"]
    stage.move_to(1.15)
    assert stage.overdue == ["t0", "t1"]
    stage.move_to(9.0)
    assert stage.overdue == ["t0", "t1", "t2"]


async def test_tasks_that_started_together_are_overdue_together(stage: Stage) -> None:
    stage.start("a")
    stage.start("b")
    stage.move_to(1.0)
    assert stage.overdue == ["a", "b"]
    assert stage.timers == []


async def test_a_task_that_ended_in_time_is_never_overdue(stage: Stage) -> None:
    stage.start("quick")
    stage.start("slow")
    assert stage.end("quick")
    stage.move_to(1.0)
    assert stage.overdue == ["slow"]
    assert not stage.end("slow")


async def test_a_longer_timeout_does_not_delay_shorter_ones(stage: Stage) -> None:
    stage.start("long", timedelta(hours=1))
    stage.start("short")
    stage.start("equally short", timedelta(milliseconds=1000))
    assert len(stage.timers) == 2
    stage.move_to(1.0)
    assert stage.overdue == ["short", "equally short"]
    stage.move_to(3600.0)
    assert stage.overdue[2:] == ["long"]


async def test_many_tasks_of_one_timeout_share_one_timer(stage: Stage) -> None:
    for n in range(50):
        stage.move_to(n / 100)
        stage.start(f"t{n}")
        stage.end(f"t{n}")
    assert [timer.at for timer in stage.timers] == [1.0]


async def test_a_timer_whose_task_ended_is_set_for_the_next(stage: Stage) -> None:
    stage.start("first")
    stage.move_to(0.5)
    stage.start("second")
    stage.end("first")
    stage.move_to(1.0)
    assert stage.overdue == []
    assert [timer.at for timer in stage.timers] == [1.5]
    stage.move_to(1.5)
    assert stage.overdue == ["second"]


async def test_after_a_pause_there_is_a_timer_again(stage: Stage) -> None:
    stage.start("first")
    stage.end("first")
    stage.move_to(5.0)
    assert stage.timers == []
    stage.start("second")
    stage.move_to(6.0)
    assert stage.overdue == ["second"]


async def test_closing_cancels_the_timers_and_still_reports_who_ended_in_time(stage: Stage) -> None:
    stage.start("a")
    stage.start("b", timedelta(seconds=2))
    stage.deadlines.close()
    assert stage.timers == []
    stage.move_to(2.0)
    assert stage.overdue == []
    assert stage.end("a")


async def test_a_timer_does_not_fire_in_the_context_of_the_run_that_set_it() -> None:
    of_a_run = ContextVar("of_a_run", default="nobody's")
    reported: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    deadlines = Deadlines(lambda task: reported.set_result(of_a_run.get()))

    async def run() -> None:
        of_a_run.set("its own")
        task = asyncio.current_task()
        assert task is not None
        deadlines.start(task, timedelta(milliseconds=1))

    await asyncio.create_task(run())
    assert await asyncio.wait_for(reported, 5) == "nobody's"


async def test_a_task_whose_report_fails_does_not_keep_others_from_being_reported() -> None:  # S26
    facts = Facts()
    stage = Stage()
    reported: list[str] = []

    def report(task: asyncio.Task[Any]) -> None:
        reported.append(task.get_name())
        if reported == ["a"]:
            raise ValueError("a bug")

    guard = supervisor(facts).add("run-timeouts").guard
    stage.deadlines = Deadlines(report, guard=guard, timers=stage.as_timers)
    for name in ("a", "b", "c"):
        stage.start(name)
    stage.move_to(1.0)
    assert reported == ["a", "b", "c"]
    stage.move_to(2.0)
    assert reported == ["a", "b", "c", "a"]
    assert [type(fact) for fact in facts] == [ServiceStarted, ServiceFailed, ServiceRecovered]
    for task in stage.tasks.values():
        task.cancel()
    await asyncio.wait(stage.tasks.values())
