"""Senders that never give up, and a checker of what became of everything they were promised."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from support.server import read_ledger
from support.wire import request

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
    """What was sent, and what was acknowledged: key -> event id."""

    def __init__(self, *, seed: int = 1) -> None:
        self.attempted: set[str] = set()
        self.acked: dict[str, str] = {}
        self.refused: Counter[int] = Counter()
        self._chance = random.Random(seed)
        self._number = 0

    def next_event(self) -> tuple[str, bytes]:
        self._number += 1
        key = f"event-{self._number}"
        self.attempted.add(key)
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

    def check(self, ledger: Path) -> None:
        """After all is settled: nothing lost, nothing stale, effects exactly once."""
        rows = read_ledger(ledger, "SELECT id, idempotency_key, status, run FROM events")
        settled = {event_id: (status, run) for event_id, _, status, run in rows}
        assert set(self.acked.values()) <= set(settled), "acknowledged and lost"
        assert {key for _, key, _, _ in rows} <= self.attempted
        assert len({key for _, key, _, _ in rows}) == len(rows)
        assert {status for status, _ in settled.values()} <= {"completed", "failed"}
        effects = read_ledger(ledger, "SELECT event_id, run FROM effects")
        assert sorted(effects) == sorted(
            (event_id, run) for event_id, (status, run) in settled.items() if status == "completed"
        ), "effects are not exactly those of the runs that completed their events"
        assert read_ledger(ledger, "PRAGMA integrity_check") == [("ok",)]
        _check_tallies(ledger, Counter(status for status, _ in settled.values()))


def _check_tallies(ledger: Path, counted: Counter[str]) -> None:
    kept = dict(read_ledger(ledger, "SELECT status, events FROM tallies"))
    assert {status: count for status, count in kept.items() if count} == counted


class Senders:
    """So many at once; each sends the same event until it is acknowledged, then the next."""

    def __init__(self, port: int, history: History, *, count: int, pause: float) -> None:
        self._port = port
        self._history = history
        self._pause = pause
        self._stopped = False
        self._tasks = [asyncio.create_task(self._send_forever()) for _ in range(count)]

    async def stop(self) -> None:
        """Each finishes the event it has in hand."""
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _send_forever(self) -> None:
        while not self._stopped:
            key, body = self._history.next_event()
            self._history.note(key, await self._post_until_acked(body))
            await asyncio.sleep(random.uniform(0, 2 * self._pause))

    async def _post_until_acked(self, body: bytes) -> str:
        while True:
            if (event_id := await self._post(body)) is not None:
                return event_id
            await asyncio.sleep(random.uniform(0.05, 0.25))

    async def _post(self, body: bytes) -> str | None:
        """None unless it was acknowledged."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return None
        try:
            headers = {"Connection": "close"}
            writer.write(request("POST", "/webhooks", body, headers))
            answer = await reader.read()
        except OSError:
            return None
        finally:
            writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        status = int(head[9:12] or b"0")
        if status not in (200, 202) or not content.endswith(b"}"):
            self._history.refused[status] += 1
            return None
        return str(json.loads(content)["id"])
