"""W7: `QUEUE_MAXSIZE` counts what waits, and not what was claimed."""

from collections.abc import AsyncIterator

import pytest

from ackbox.errors import Overloaded
from ackbox.ingest import Ingest, Limits
from ackbox.model import Envelope, Receipt, ReceiptKind, Status
from ackbox.telemetry import to_nobody
from support.events import envelope
from support.supervisor import supervisor


class Ledger:
    unavailable_reason = None

    async def record(self, envelopes: list[Envelope], *, cursor: object = None) -> list[Receipt]:
        return [
            Receipt(ReceiptKind.NEW, one.id, Status.PENDING, one.received_at) for one in envelopes
        ]


@pytest.fixture
async def ingest() -> AsyncIterator[Ingest]:
    limits = Limits(buffer_events=100, buffer_bytes=1 << 20, queue_events=4, timeout=5)
    made = Ingest(
        Ledger(),  # type: ignore[arg-type]
        limits,
        backlog=2,
        observe=to_nobody,
        uniform=lambda low, high: low,
    )
    made.start(supervisor())
    yield made
    await made.close()


async def accept(ingest: Ingest, count: int) -> None:
    for n in range(count):
        await ingest.accept(envelope(f"{ingest.recorded}-{n}"))


async def test_what_was_there_counts_and_what_is_claimed_does_not(ingest: Ingest) -> None:
    await accept(ingest, 2)
    with pytest.raises(Overloaded):
        await accept(ingest, 1)
    ingest.note_claimed(3)
    await accept(ingest, 3)
    with pytest.raises(Overloaded):
        await accept(ingest, 1)


async def test_what_is_handed_back_waits_again(ingest: Ingest) -> None:
    ingest.note_claimed(2)
    ingest.note_claimed(-2)
    await accept(ingest, 2)
    with pytest.raises(Overloaded):
        await accept(ingest, 1)


async def test_a_recount_puts_it_right_and_forgets_nothing_that_came_meanwhile(
    ingest: Ingest,
) -> None:
    before = ingest.recorded
    await accept(ingest, 1)
    ingest.recount(1, before)  # counted while that one became durable: perhaps without it
    assert ingest.waiting == 2
    ingest.recount(1, ingest.recorded)
    assert ingest.waiting == 1


async def test_it_never_goes_below_nothing(ingest: Ingest) -> None:
    ingest.note_claimed(50)
    assert ingest.waiting == 0
    assert ingest.capacity == 4
