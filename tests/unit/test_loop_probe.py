"""What blocks the event loop is named while it does (N6)."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from ackbox.telemetry import LoopBlocked
from ackbox.worker import LoopProbe
from support.facts import Facts
from support.polling import eventually
from support.supervisor import supervisor


@pytest.fixture
async def facts() -> AsyncIterator[Facts]:
    seen = Facts()
    probe = LoopProbe(observe=seen, service=supervisor(seen).add("loop-probe"))
    yield seen
    probe.stop()
    await asyncio.to_thread(probe._thread.join, 5)
    assert not probe._thread.is_alive()


def blocking_handler(facts: Facts) -> float:
    """Block the event loop until that is reported; returns after how many seconds it was."""
    began = time.monotonic()
    eventually(lambda: facts.of(LoopBlocked), within=10)
    return time.monotonic() - began


@pytest.mark.serial
async def test_a_blocked_loop_is_reported_within_two_seconds_with_the_place(facts: Facts) -> None:
    seconds = blocking_handler(facts)  # N6, F19
    assert 1.0 <= seconds < 2.0
    (blocked,) = facts.of(LoopBlocked)
    assert "blocking_handler" in blocked.where
    assert "test_loop_probe.py" in blocked.where


@pytest.mark.serial
async def test_each_block_is_reported_once_however_long_it_lasts(facts: Facts) -> None:  # N6
    for block in (1, 2):
        time.sleep(3)  # noqa: ASYNC251 - this is what a bad handler does
        assert len(facts.of(LoopBlocked)) == block
        await asyncio.sleep(0)


async def test_a_loop_that_answers_is_not_named(facts: Facts) -> None:
    for _ in range(15):
        await asyncio.sleep(0.1)  # it is busy, in short steps
    assert facts.of(LoopBlocked) == []
