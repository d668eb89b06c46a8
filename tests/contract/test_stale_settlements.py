"""A worker that lost a claim and claimed the event again may settle both runs at once (F17)."""

import pytest

from ackbox.model import Settlement
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import LEASE, QueueWorker, dead, done


@pytest.mark.parametrize("stale_first", [True, False])
async def test_of_two_runs_in_one_batch_only_the_valid_run_has_effects(
    backend: Backend, stale_first: bool
) -> None:
    me = QueueWorker(backend.store.queue)
    await backend.store.apply_tables(["CREATE TABLE seen (run INTEGER)"])
    await record_in(backend.store, [envelope("a")])
    stale = await me.claim_one()
    backend.clock.advance(seconds=LEASE.total_seconds())
    valid = await me.claim_one()
    insert = "INSERT INTO seen VALUES (:run)"
    both = [Settlement(item, done(insert, run=item.run)) for item in (stale, valid)]
    written = await backend.store.queue.settle(both if stale_first else both[::-1])
    assert await backend.reader.query("SELECT run FROM seen", {}) == [{"run": valid.run}]
    assert written == {valid.id: both[1].outcome}


@pytest.mark.parametrize("stale_first", [True, False])
async def test_of_two_runs_in_one_batch_the_outcome_of_the_valid_run_is_returned(
    backend: Backend, stale_first: bool
) -> None:
    me = QueueWorker(backend.store.queue)
    await record_in(backend.store, [envelope("a")])
    stale = await me.claim_one()
    backend.clock.advance(seconds=LEASE.total_seconds())
    valid = await me.claim_one()
    both = [Settlement(stale, dead()), Settlement(valid, done())]
    written = await backend.store.queue.settle(both if stale_first else both[::-1])
    assert dict(written) == {valid.id: done()}
    assert [row["status"] for row in await backend.rows()] == ["completed"]
