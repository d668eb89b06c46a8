"""Submissions on SQLite: the test harness relies on moves that take turns."""

import asyncio

from ackbox.model import Done, Moved, make_sent_event
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import QueueWorker


async def test_a_move_waits_for_a_move_that_began_before_it(open_it: OpenStore) -> None:
    store = await open_it()
    await record_in(store, [envelope()])
    worker = QueueWorker(store.queue)
    sent = [make_sent_event("a", 1, key="k", source="app", lane=None)]
    await worker.settle(await worker.claim_one(), Done("handled", (), None, sent))
    first = asyncio.ensure_future(store.submissions.move())
    await asyncio.sleep(0)
    assert await store.submissions.move() == Moved()
    assert first.done()
    assert len(first.result().envelopes) == 1
