"""Senders that retry until they are acknowledged, and a check of what became of their events."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from support.http.wire import request
from support.servers.app_server import AppServer

Query = Callable[[str], list[tuple[Any, ...]]]
"""A query on a ledger of either kind."""

APP = """
import asyncio
from ackbox import Dead, Event, Inbox, Tx

inbox = Inbox()
inbox.schema("CREATE TABLE IF NOT EXISTS effects (event_id TEXT, run INTEGER)")

@inbox.on("*")
async def handle(event: Event, tx: Tx) -> None:
    wanted = event.json()
    tx.execute("INSERT INTO effects VALUES (:id, :run)", id=event.id, run=event.run)
    await asyncio.sleep(wanted["seconds"])
    if wanted["dead"]:
        raise Dead("as asked")
    if event.attempts <= wanted["failures"]:
        raise ValueError("as asked")
"""
"""A handler whose effects are exactly one row for each completed event."""


class History:
    """The events that were sent, and those that were acknowledged (key to event id)."""

    def __init__(self, *, seed: int = 1) -> None:
        self.attempted: set[str] = set()
        self.acked: dict[str, str] = {}
        self.sent_at: dict[str, float] = {}
        self.acked_at: dict[str, float] = {}
        self.refused: Counter[int] = Counter()
        self._chance = random.Random(seed)
        self._number = 0

    def next_event(self) -> tuple[str, bytes]:
        self._number += 1
        key = f"event-{self._number}"
        self.attempted.add(key)
        self.sent_at[key] = time.monotonic()
        payload = {
            "seconds": self._chance.choice([0, 0, 0, 0.01, 0.1]),
            "failures": self._chance.choice([0, 0, 0, 0, 1, 2]),
            "dead": self._chance.random() < 0.02,
        }
        lane = f"lane-{self._number % 7}" if self._number % 5 == 0 else None
        body: dict[str, Any] = {"idempotency_key": key, "payload": payload}
        return key, json.dumps(body | ({"lane": lane} if lane else {})).encode()

    def note(self, key: str, event_id: str) -> None:
        assert self.acked.setdefault(key, event_id) == event_id, "one key, two events"
        self.acked_at.setdefault(key, time.monotonic())

    def check(self, query: Query) -> None:
        """Check, after all is settled: nothing is lost or stale, and effects apply exactly once."""
        rows = query("SELECT id, idempotency_key, status, run FROM events")
        settled = {event_id: (status, run) for event_id, _, status, run in rows}
        assert set(self.acked.values()) <= set(settled), "acknowledged and lost"
        assert {key for _, key, _, _ in rows} <= self.attempted
        assert len({key for _, key, _, _ in rows}) == len(rows)
        assert {status for status, _ in settled.values()} <= {"completed", "failed"}
        effects = query("SELECT event_id, run FROM effects")
        assert sorted(effects) == sorted(
            (event_id, run) for event_id, (status, run) in settled.items() if status == "completed"
        ), "effects are not exactly those of the runs that completed their events"
        _check_status_counts(query, Counter(status for status, _ in settled.values()))

    def check_order(self, query: Query) -> None:
        """Check that an event sent after the acknowledgement of another of its lane comes later."""
        rows = query(
            "SELECT lane, idempotency_key FROM events WHERE lane IS NOT NULL "
            "ORDER BY ledger_id DESC"
        )
        first_acked: dict[str, float] = {}
        for lane, key in rows:
            younger = first_acked.get(lane, float("inf"))
            assert self.sent_at[key] <= younger, (
                f"{key} is before an event that was acknowledged before {key} was sent"
            )
            first_acked[lane] = min(younger, self.acked_at.get(key, float("inf")))


def _check_status_counts(query: Query, counted: Counter[str]) -> None:
    kept: dict[str, int] = dict(
        query("SELECT status, sum(events) FROM status_counts GROUP BY status")
    )
    assert {status: count for status, count in kept.items() if count} == counted


class Senders:
    """Concurrent senders. Each sends an event until it is acknowledged, and then the next. With
    several ports, each request goes to a random one, and some events are sent again afterwards."""

    def __init__(
        self, ports: Sequence[int], history: History, *, count: int, pause: float, patience: float
    ) -> None:
        self._ports = ports
        self._history = history
        self._pause = pause
        self._patience = patience
        self._stopped = False
        self._tasks = [asyncio.create_task(self._send_forever()) for _ in range(count)]

    async def stop(self) -> None:
        """Stop, after each sender's current event is acknowledged."""
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _send_forever(self) -> None:
        while not self._stopped:
            key, body = self._history.next_event()
            self._history.note(key, await self._post_until_acked(body))
            if len(self._ports) > 1 and random.random() < 0.2:
                self._history.note(key, await self._post_until_acked(body))
            await asyncio.sleep(random.uniform(0, 2 * self._pause))

    async def _post_until_acked(self, body: bytes) -> str:
        while True:
            if (event_id := await self._post(body)) is not None:
                return event_id
            await asyncio.sleep(random.uniform(0.05, 0.25))

    async def _post(self, body: bytes) -> str | None:
        """Return the event id, or None if the request was not acknowledged."""
        try:
            async with asyncio.timeout(self._patience):
                response = await exchange(random.choice(self._ports), body)
        except OSError:
            return None
        head, _, content = response.partition(b"\r\n\r\n")
        status = int(head[9:12] or b"0")
        if status not in (200, 202) or not content.endswith(b"}"):
            self._history.refused[status] += 1
            return None
        return str(json.loads(content)["id"])


async def exchange(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request("POST", "/webhooks", body, {"Connection": "close"}))
        return await reader.read()
    finally:
        writer.close()


SETTINGS = {"MAX_ATTEMPTS": "30", "RETRY_BASE_DELAY": "20ms", "RETRY_MAX_DELAY": "200ms"}


async def kill_repeatedly(server: AppServer, cycles: int) -> History:
    """Kill the server `cycles` times. Return when all sent events are acknowledged and settled."""
    history = History()
    senders = Senders([server.port], history, count=50, pause=0.2, patience=30)
    for _ in range(cycles):
        await asyncio.sleep(random.uniform(0.05, 0.4))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
    await asyncio.wait_for(senders.stop(), 30)
    await asyncio.to_thread(server.wait_until_idle, within=60 + cycles)  # lanes run one by one
    assert server.query("PRAGMA integrity_check") == [("ok",)]
    return history
