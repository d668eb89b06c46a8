"""A clock that is a month ahead at the start deletes nothing (S22)."""

from pathlib import Path

from ackbox import Inbox
from ackbox.app import App
from ackbox.config import Settings
from ackbox.model import Clock, Status
from ackbox.telemetry import Fact, Pruned, RetentionPaused
from support.ledgers.events import accept, envelope, noon
from support.ledgers.facts import Facts
from support.time.clocks import ManualClock
from support.time.polling import until


async def run_once(folder: Path, clock: Clock, kind: type[Fact], *, send: bool) -> Facts:
    """Run an inbox until a fact of this kind is observed, and return all facts."""
    facts, settings = Facts(), Settings(db_path=folder / "inbox.db")
    inbox = Inbox()

    @inbox.on("*")
    async def handle(event: object) -> None:
        pass

    async with inbox.running(App(settings, clock=clock, guest=True, observers=[facts])) as runtime:
        if send:
            await accept(runtime.ingest, envelope(str(clock()), at=clock()))

        async def is_completed() -> bool:
            return (await runtime.reader.stats(noon())).counts[Status.COMPLETED] > 0

        await until(lambda: facts.of(kind))
        if send:
            await until(is_completed)
    return facts


async def test_a_clock_that_is_a_month_ahead_at_the_start_deletes_nothing(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    await run_once(tmp_path, clock, Pruned, send=True)
    clock.advance(days=31)
    facts = await run_once(tmp_path, clock, RetentionPaused, send=False)
    assert facts.of(Pruned) == []

    await run_once(tmp_path, clock, RetentionPaused, send=True)  # a new event: the clock is right
    facts = await run_once(tmp_path, clock, Pruned, send=False)
    assert [fact.tombstoned for fact in facts.of(Pruned)] == [1]
