"""Claims: which events, in which order, and no more than a share for each source."""

import asyncio
from datetime import timedelta

import pytest

from ackbox.model import (
    Caps,
    Claim,
    EventId,
    Release,
    from_text,
)
from support.ledgers.backends import Backend, crash, record, restart, row
from support.ledgers.events import NOON, envelope, record_in
from support.time.clocks import ManualClock
from support.workers.queue_worker import LEASE, ME, OTHER, QueueWorker, retry_later

SECOND = timedelta(seconds=1)


async def test_the_event_that_is_due_longest_is_claimed_first(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a", "b")
    await me.settle(await me.claim_one(limit=1), retry_later(after=5 * SECOND))
    clock.advance(seconds=2)
    await record(backend, "c")
    clock.advance(seconds=10)
    assert await me.keys() == ["b", "c", "a"]


async def test_a_claim_never_exceeds_its_limit(backend: Backend, me: QueueWorker) -> None:
    await record(backend, *"abcde")
    assert await me.keys(2) == ["a", "b"]
    assert await me.keys(2) == ["c", "d"]
    assert await me.keys(2) == ["e"]
    assert await me.keys(2) == []


async def test_a_claim_has_every_field_of_the_envelope(backend: Backend, me: QueueWorker) -> None:
    sent = envelope(
        "k",
        b"\x00not json\xff",
        event_type="invoice.paid",
        headers='{"x-topic":"a"}',
        content_type="text/plain",
        lane="c1",
        source_sequence=7,
        source_emitted_at=NOON,
        request_id="r-1",
    )
    await record_in(backend.store, [sent])
    claim = await me.claim_one()
    given = {name: getattr(sent, name) for name in Claim.__struct_fields__ if hasattr(sent, name)}
    assert {name: getattr(claim, name) for name in given} == given
    assert (claim.run, claim.attempts, claim.unsettled) == (1, 1, 0)
    assert claim.created_at == NOON


@pytest.mark.parametrize("size", [0, 65_535, 65_536, 65_537, 900_000])
async def test_a_payload_of_any_size_is_claimed_whole(
    backend: Backend, me: QueueWorker, size: int
) -> None:
    payload = bytes(n % 251 for n in range(size))
    await record_in(backend.store, [envelope("k", payload), envelope("small", b"s")])
    assert [claim.payload for claim in await me.claim()] == [payload, b"s"]


async def test_a_claim_marks_the_row_for_the_duration_of_the_lease(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    before = await row(backend, "a")
    clock.advance(seconds=3)
    await me.claim_one()
    after = await row(backend, "a")
    assert (after["status"], after["processor_id"]) == ("processing", ME)
    assert from_text(after["lease_until"]) == clock() + LEASE
    assert from_text(after["updated_at"]) == clock()
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == {
        *("status", "processor_id", "lease_until", "claimable_at", "updated_at"),
        *("run", "attempts"),
    }


async def test_a_claimed_event_is_not_claimed_again_during_its_lease(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # P3
    await record(backend, "a")
    await me.claim_one()
    clock.advance(seconds=29.999)
    assert await other.claim() == []


async def test_concurrent_claims_share_the_events(backend: Backend, me: QueueWorker) -> None:  # P3
    await record(backend, *(f"k{n}" for n in range(60)))
    taken = await asyncio.gather(*(me.claim(7) for _ in range(12)))
    keys = [claim.idempotency_key for claims in taken for claim in claims]
    assert sorted(keys) == sorted(f"k{n}" for n in range(60))


async def test_an_expired_lease_is_taken_over(
    backend: Backend, me: QueueWorker, other: QueueWorker, clock: ManualClock
) -> None:  # W3, F5
    await record(backend, "a")
    first = await me.claim_one()
    clock.advance(seconds=30)
    second = await other.claim_one()
    assert (second.run, second.attempts, second.unsettled) == (
        2,
        1,
        1,
    )  # S9: the attempt was refunded
    assert (await row(backend, "a"))["processor_id"] == OTHER
    assert first.id == second.id


async def test_a_restart_does_not_bring_a_retry_forward(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # W4, F4
    await record(backend, "a")
    await me.settle(await me.claim_one(), retry_later(after=10 * SECOND))
    me = await restart(backend)
    clock.advance(seconds=9.9)
    assert await me.claim() == []
    clock.advance(seconds=0.1)
    assert await me.keys() == ["a"]


async def test_a_crash_refunds_the_attempt_unless_the_run_was_a_suspects(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9, F23
    """An event that kills its process has `MAX_ATTEMPTS` + 2 runs, and four with one attempt."""
    await record(backend, "a")
    counts = []
    for _ in range(6):
        claim = await me.claim_any()
        counts.append((claim.run, claim.attempts, claim.unsettled))
        clock.advance(seconds=31)
    assert counts == [(1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 2, 3), (5, 3, 4), (6, 4, 5)]


async def test_run_goes_up_at_every_claim_and_never_down(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    runs = []
    for outcome in (
        Release(),
        retry_later(after=SECOND),
        None,
        Release(),
        retry_later(after=SECOND),
        None,
    ):
        claim = await me.claim_any()
        runs.append(claim.run)
        if outcome is None:
            clock.advance(seconds=31)
        else:
            await me.settle(claim, outcome)
            clock.advance(seconds=2)
    assert runs == [1, 2, 3, 4, 5, 6]


async def test_attempts_count_claims_and_a_release_refunds_one(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # F32
    await record(backend, "a")
    attempts = []
    for outcome in (Release(), retry_later(after=SECOND), Release(), retry_later(after=SECOND)):
        claim = await me.claim_one()
        attempts.append(claim.attempts)
        await me.settle(claim, outcome)
        clock.advance(seconds=2)
    assert attempts == [1, 1, 2, 2]
    assert (await row(backend, "a"))["attempts"] == 2


async def test_unsettled_counts_take_overs_in_a_row(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "a")
    claims = []
    for _ in range(4):
        claims.append(await me.claim_any())
        clock.advance(seconds=31)
    await me.settle(claims[-1], retry_later(after=SECOND))
    assert (await row(backend, "a"))["unsettled"] == 0
    clock.advance(seconds=2)
    claims.append(await me.claim_one())
    assert [claim.unsettled for claim in claims] == [0, 1, 2, 3, 0]


async def test_while_others_wait_no_source_gets_more_than_its_share(
    backend: Backend, me: QueueWorker
) -> None:  # F24
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    await record(backend, *(f"y{n}" for n in range(3)), source="y")
    taken = await me.keys(20, caps=Caps(share=5, held={}))
    assert sorted(taken) == ["x0", "x1", "x2", "x3", "x4", "y0", "y1", "y2"]


async def test_held_claims_count_against_the_share_of_their_source(
    backend: Backend, me: QueueWorker
) -> None:  # F24
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    await record(backend, *(f"y{n}" for n in range(9)), source="y")
    caps = Caps(share=5, held={"x": 4, "y": 7})
    assert await me.keys(20, caps=caps) == ["x0"]


async def test_a_source_alone_gets_all_up_to_its_cap(backend: Backend, me: QueueWorker) -> None:
    await record(backend, *(f"x{n}" for n in range(50)), source="x")
    assert len(await me.claim(20, caps=Caps(share=5, held={}))) == 20
    held = {"x": 20}
    assert len(await me.claim(20, caps=Caps(share=5, held=held, alone=23))) == 3


async def test_the_source_that_waits_longest_goes_first(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    await record(backend, "z1", source="z")
    clock.advance(seconds=1)
    await record(backend, "a1", "a2", source="a")
    assert await me.keys(2, caps=Caps(share=5, held={})) == ["z1", "a1"]


async def test_a_claim_by_id_claims_only_these_events(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:
    a, b, c, later = await record(backend, "a", "b", "c", "later")
    await me.settle(await me.claim_one(ids=[later.id]), retry_later(after=10 * SECOND))
    wanted = [c.id, later.id, EventId("nobody"), a.id]
    assert sorted(await me.keys(ids=wanted)) == ["a", "c"]
    assert await me.keys(ids=[a.id]) == []
    assert await me.keys(1, ids=[b.id, later.id]) == ["b"]


async def test_a_claim_by_id_respects_its_limit_and_lanes(
    backend: Backend, me: QueueWorker
) -> None:
    made = await record(backend, "a1", "a2", lane="a") + await record(backend, "b", "c")
    ids = [item.id for item in made]
    assert await me.keys(2, ids=ids) == ["a1", "b"]
    assert await me.keys(2, ids=ids) == ["c"]


async def test_a_claim_by_id_claims_no_suspect(
    backend: Backend, me: QueueWorker, clock: ManualClock
) -> None:  # S9
    (suspect,) = await record(backend, "suspect")
    for _ in range(2):
        await me.claim_one()
        await crash(clock)
    (b,) = await record(backend, "b")
    assert await me.keys(ids=[suspect.id, b.id]) == ["b"]
    assert await me.keys(ids=[suspect.id]) == []
