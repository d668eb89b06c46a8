"""`QUEUE_MAXSIZE` counts the events that wait, not those that were claimed (W7)."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ackbox.errors import Overloaded
from ackbox.ingest import Ingest, Limits
from ackbox.model import Receipt, ReceiptKind, Status, Submission
from ackbox.telemetry import ignore_facts
from support.ledgers.events import accept, envelope
from support.time.supervisor import supervisor


class Ledger:
    unavailable_reason = None

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        return [
            Receipt(ReceiptKind.NEW, sent.id, Status.PENDING, sent.received_at)
            for submission in submissions
            for sent in submission.envelopes
        ]


@pytest.fixture
async def ingest() -> AsyncIterator[Ingest]:
    limits = Limits(buffer_events=100, buffer_bytes=1 << 20, queue_events=4, timeout=5)
    made = Ingest(
        Ledger(),  # type: ignore[arg-type]
        limits,
        backlog=2,
        observe=ignore_facts,
        uniform=lambda low, high: low,
    )
    made.start(supervisor())
    yield made
    await made.close()


async def accept_many(ingest: Ingest, count: int) -> None:
    for n in range(count):
        await accept(ingest, envelope(f"{ingest.recorded}-{n}"))


async def test_the_backlog_at_the_start_counts_and_claimed_events_do_not(ingest: Ingest) -> None:
    await accept_many(ingest, 2)
    with pytest.raises(Overloaded):
        await accept_many(ingest, 1)
    ingest.note_claimed(3)
    await accept_many(ingest, 3)
    with pytest.raises(Overloaded):
        await accept_many(ingest, 1)


async def test_released_events_wait_again(ingest: Ingest) -> None:
    ingest.note_claimed(2)
    ingest.note_claimed(-2)
    await accept_many(ingest, 2)
    with pytest.raises(Overloaded):
        await accept_many(ingest, 1)


async def test_a_recount_keeps_the_events_that_arrived_meanwhile(
    ingest: Ingest,
) -> None:
    before = ingest.recorded
    await accept_many(ingest, 1)
    ingest.recount(1, before)  # the count may have missed the event that became durable
    assert ingest.waiting == 2
    ingest.recount(1, ingest.recorded)
    assert ingest.waiting == 1


async def test_the_backlog_is_never_negative(ingest: Ingest) -> None:
    ingest.note_claimed(50)
    assert ingest.waiting == 0
    assert ingest.capacity == 4
