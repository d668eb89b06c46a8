"""Kill servers whose handlers send follow-up events, and check that each follow-up arrived once."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from support.ledgers.history import History, Query, Senders
from support.servers.app_server import AppServer
from support.time.polling import eventually

APP = """
import asyncio
from ackbox import Event, Inbox, Tx

inbox = Inbox()
inbox.schema("CREATE TABLE IF NOT EXISTS received (event_key TEXT, parent TEXT)")

@inbox.on("webhook")
async def first(event: Event, tx: Tx) -> None:
    wanted = event.json()
    tx.send("step", {"parent": event.id})
    tx.send("step", {"parent": event.id}, lane=event.idempotency_key[-2:])
    await asyncio.sleep(wanted["seconds"])
    if event.attempts <= wanted["failures"]:
        raise ValueError("as asked")

@inbox.on("step", source="app")
async def step(event: Event, tx: Tx) -> None:
    tx.execute(
        "INSERT INTO received VALUES (:event_key, :parent)",
        event_key=event.idempotency_key,
        parent=event.json()["parent"],
    )
"""
SETTINGS = {
    "MAX_ATTEMPTS": "60",
    "RETRY_BASE_DELAY": "20ms",
    "RETRY_MAX_DELAY": "200ms",
    "CLAIM_TIMEOUT": "2s",
}
LEFT = """SELECT (SELECT count(*) FROM submissions)
    + (SELECT count(*) FROM events WHERE status IN ('pending', 'processing'))"""


async def kill_in_turn(servers: Sequence[AppServer], cycles: int, query: Query) -> History:
    """Kill a server `cycles` times while senders send to all of them. Return when all events are
    settled."""
    history = History()
    ports = [server.port for server in servers]
    senders = Senders(ports, history, count=20, pause=0.1, patience=30)
    for cycle in range(cycles):
        await asyncio.sleep(random.uniform(0.05, 0.4))
        server = servers[cycle % len(servers)]
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
    await asyncio.wait_for(senders.stop(), 60)
    await wait_until_settled(query, within=60 + cycles)
    return history


async def wait_until_settled(query: Query, *, within: float) -> None:
    """Wait until nothing is left to record or to run. A query on PostgreSQL starts a process."""
    await asyncio.to_thread(eventually, lambda: query(LEFT) == [(0,)], within=within, every=0.3)


def check_follow_ups(history: History, query: Query) -> None:
    """Check that each event has its two follow-ups, and that each follow-up took effect once."""
    firsts = {event_id for (event_id,) in query("SELECT id FROM events WHERE source = 'webhooks'")}
    assert set(history.acked.values()) <= firsts
    expected = {f"{event_id}:{n}": event_id for event_id in firsts for n in (1, 2)}
    sent = query("SELECT idempotency_key, parent_id, ingest_count FROM events WHERE source = 'app'")
    assert {key: parent for key, parent, _ in sent} == expected
    assert {count for _, _, count in sent} == {1}, "a follow-up was recorded twice"
    received = Counter(query("SELECT event_key, parent FROM received"))
    assert received == Counter(expected.items())
    assert query("SELECT DISTINCT status FROM events") == [("completed",)]
