"""When ends of runs go to the store, and which of them go together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest

from ackbox.model import Claim, Done
from ackbox.worker import settlement
from ackbox.worker.settlement import Settler
from support.facts import Facts
from support.runs import ScriptedQueue, claim
from support.supervisor import supervisor

TURNS = 20


class Stage:
    def __init__(self) -> None:
        self.queue = ScriptedQueue()
        self.let_go: list[Claim] = []
        self.settler = Settler(self.queue, observe=Facts(), let_go=self._let_go)

    def end(self, *keys: str) -> None:
        for key in keys:
            self.settler.add(claim(key), Done())

    async def turn_the_loop(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def _let_go(self, claims: Sequence[Claim]) -> None:
        self.let_go += claims


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    running = supervisor().run("settlements", made.settler.settle_next)
    await asyncio.sleep(0)
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_ends_are_settled_without_being_asked_for(stage: Stage) -> None:
    stage.end("a", "b")
    await stage.turn_the_loop()
    assert stage.queue.batches == [2]
    assert [one.id for one in stage.let_go] == ["a", "b"]


async def test_what_ended_before_a_claim_goes_with_it(stage: Stage) -> None:
    stage.end("a", "b")
    async with stage.settler.beside_a_claim():
        assert stage.queue.batches == [2]


async def test_what_ends_beside_a_claim_goes_after_it(stage: Stage) -> None:
    async with stage.settler.beside_a_claim():
        stage.end("a")
        await stage.turn_the_loop()
        stage.end("b")
        await stage.turn_the_loop()
        assert stage.queue.batches == []
    await stage.turn_the_loop()
    assert stage.queue.batches == [2]


async def test_a_claim_that_fails_holds_up_nothing(stage: Stage) -> None:
    with suppress(ValueError):
        async with stage.settler.beside_a_claim():
            stage.end("a")
            raise ValueError("no claim")
    await stage.turn_the_loop()
    assert stage.queue.batches == [1]
    stage.end("b")
    await stage.turn_the_loop()
    assert stage.queue.batches == [1, 1]


async def test_many_ends_do_not_wait_for_a_claim(stage: Stage) -> None:
    async with stage.settler.beside_a_claim():
        stage.end(*(f"e{n}" for n in range(500)))
        await stage.turn_the_loop()
        assert stage.queue.batches == [500]


async def test_a_claim_that_hangs_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "_PATIENCE_SECONDS", 0.0)
    async with stage.settler.beside_a_claim():
        stage.end("a")
        async with asyncio.timeout(5):
            while not stage.queue.batches:  # noqa: ASYNC110 - what it looks at has no event
                await asyncio.sleep(0)


async def test_what_gathered_while_the_store_was_away_goes_in_pieces(stage: Stage) -> None:
    stage.end(*(f"e{n}" for n in range(1100)))
    await stage.turn_the_loop()
    assert stage.queue.batches == [500, 500, 100]


async def test_all_is_settled_at_the_end_whatever_is_under_way(stage: Stage) -> None:
    async with stage.settler.beside_a_claim():
        stage.end("a")
        await stage.settler.flush(5)
        assert stage.queue.batches == [1]
