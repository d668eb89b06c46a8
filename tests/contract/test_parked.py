"""Events that nobody can handle are held aside: they neither starve the others nor get lost."""

from msgspec.structs import replace

from ackbox.model import Claim, Outcome, Release, Settlement, Status
from support.backends import Backend
from support.events import envelope
from support.work import LEASE, NOTHING_HELD, OTHER, Hands, done

ROWS = 10_000
PAGE = 1000
CAPS = replace(NOTHING_HELD, share=ROWS)


# F22
async def test_ten_thousand_ended_leases_that_nobody_handles_do_not_starve_the_one_behind(
    backend: Backend,
) -> None:
    me = Hands(backend.store.queue)
    await lose_claims(backend)
    await backend.store.record([envelope("good", at=backend.clock())])
    seen = [key for _ in range(ROWS // PAGE + 1) for key in await hold_a_page(me)]
    assert len(seen) == ROWS + 1  # each of them once: what is held is out of the way
    assert "good" in seen
    backend.clock.advance(days=1)
    await backend.store.record([envelope("better", at=backend.clock())])
    assert await me.keys(1) == ["better"]
    stats = await backend.reader.stats()
    assert stats.counts[Status.PENDING] == ROWS


async def lose_claims(backend: Backend) -> None:
    """Somebody claimed them, and is gone."""
    sent = [envelope(f"key-{n}", event_type="unknown") for n in range(ROWS)]
    for at in range(0, ROWS, PAGE):
        await backend.store.record(sent[at : at + PAGE])
        assert len(await Hands(backend.store.queue, OTHER).claim(PAGE, caps=CAPS)) == PAGE
    backend.clock.advance(seconds=LEASE.total_seconds() + 1)


async def hold_a_page(me: Hands) -> list[str]:
    claims = await me.claim(PAGE, caps=CAPS)
    written = await me.queue.settle([Settlement(claim, outcome_of(claim)) for claim in claims])
    assert len(written) == len(claims)
    return [claim.idempotency_key for claim in claims]


def outcome_of(claim: Claim) -> Outcome:
    return Release(parked=True) if claim.event_type == "unknown" else done()
