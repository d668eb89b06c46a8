"""Events without a handler are parked: they neither starve other events nor get lost."""

from msgspec.structs import replace

from ackbox.model import Claim, Outcome, Release, Settlement, Status
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import LEASE, NO_CLAIMS_HELD, OTHER, QueueWorker, done

ROWS = 10_000
PAGE = 1000
CAPS = replace(NO_CLAIMS_HELD, share=ROWS)


# F22
async def test_ten_thousand_expired_leases_without_a_handler_do_not_starve_a_new_event(
    backend: Backend,
) -> None:
    me = QueueWorker(backend.store.queue)
    await lose_claims(backend)
    await record_in(backend.store, [envelope("good", at=backend.clock())])
    seen = [key for _ in range(ROWS // PAGE + 1) for key in await park_a_page(me)]
    assert len(seen) == ROWS + 1  # each once: parked events are not claimed again
    assert "good" in seen
    backend.clock.advance(days=1)
    await record_in(backend.store, [envelope("better", at=backend.clock())])
    assert await me.keys(1) == ["better"]
    stats = await backend.reader.stats(backend.clock())
    assert stats.counts[Status.PENDING] == ROWS


async def lose_claims(backend: Backend) -> None:
    """Claim events with a worker that then disappears."""
    sent = [envelope(f"key-{n}", event_type="unknown") for n in range(ROWS)]
    for at in range(0, ROWS, PAGE):
        await record_in(backend.store, sent[at : at + PAGE])
        assert len(await QueueWorker(backend.store.queue, OTHER).claim(PAGE, caps=CAPS)) == PAGE
    backend.clock.advance(seconds=LEASE.total_seconds() + 1)


async def park_a_page(me: QueueWorker) -> list[str]:
    claims = await me.claim(PAGE, caps=CAPS)
    written = await me.queue.settle([Settlement(claim, outcome_of(claim)) for claim in claims])
    assert len(written) == len(claims)
    return [claim.idempotency_key for claim in claims]


def outcome_of(claim: Claim) -> Outcome:
    return Release(parked=True) if claim.event_type == "unknown" else done()
