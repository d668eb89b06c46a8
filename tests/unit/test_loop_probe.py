"""The call that blocks the event loop is named while it blocks (N6)."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ackbox.telemetry import LoopBlocked
from ackbox.worker import LoopProbe
from ackbox.worker.threads import ThreadClock
from support.ledgers.facts import Facts
from support.time.clocks import SteppedThread
from support.time.polling import eventually
from support.time.supervisor import supervisor


class Stage:
    """A probe, and the facts that it reports."""

    def __init__(self, clock: ThreadClock) -> None:
        self.facts = Facts()
        service = supervisor(self.facts).add("loop-probe")
        self.probe = LoopProbe(observe=self.facts, service=service, clock=clock)

    @property
    def blocks(self) -> list[LoopBlocked]:
        return self.facts.of(LoopBlocked)

    async def stop(self) -> None:
        self.probe.stop()
        await asyncio.to_thread(self.probe._thread.join, 5)
        assert not self.probe._thread.is_alive()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage(ThreadClock())
    yield made
    await made.stop()


@pytest.fixture
def thread() -> SteppedThread:
    return SteppedThread()


@pytest.fixture
async def stepped(thread: SteppedThread) -> AsyncIterator[Stage]:
    """A probe whose thread takes one step at a time; a step is a wait of the probe."""
    made = Stage(thread.clock)
    thread.await_wait()
    yield made
    made.probe.stop()
    thread.release()
    await made.stop()


def blocking_handler(stage: Stage) -> float:
    """Block the event loop until the block is reported; return after how many seconds."""
    began = time.monotonic()
    eventually(lambda: stage.blocks, within=10)
    return time.monotonic() - began


@pytest.mark.serial
async def test_a_blocked_loop_is_reported_within_two_seconds_with_the_call(stage: Stage) -> None:
    seconds = blocking_handler(stage)  # N6, F19
    assert 1.0 <= seconds < 2.0
    (blocked,) = stage.blocks
    assert "blocking_handler" in blocked.where
    assert "test_loop_probe.py" in blocked.where


async def test_each_block_is_reported_once_however_long_it_lasts(
    stepped: Stage, thread: SteppedThread
) -> None:  # N6
    for block in (1, 2):
        began = thread.now
        while thread.now < began + 4.0:
            thread.step()  # on the event loop, which is blocked meanwhile
        assert len(stepped.blocks) == block
        await asyncio.sleep(0)  # the event loop responds
        thread.step()


async def test_a_loop_that_responds_is_not_reported(stepped: Stage, thread: SteppedThread) -> None:
    for _ in range(15):
        thread.step()  # the probe schedules its callback
        await asyncio.sleep(0)
        thread.step()  # the callback has run
    assert stepped.blocks == []
    assert thread.now >= 15.0
