"""Claims and registrations for tests of the worker, and a queue that a test controls."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

import structlog

from ackbox.handlers import Registration, Registry, describe
from ackbox.model import SUSPECT, Caps, Claim, EventId, Outcome, Settlement, Suspect, WorkerId
from ackbox.worker import Executor, RunPolicy
from support.ledgers.events import NOON

MINUTE = timedelta(minutes=1)


def claim(key: str = "a", **more: Any) -> Claim:
    given: dict[str, Any] = {
        "ledger_id": sum(key.encode()),
        "id": EventId(key),
        "run": 1,
        "source": "webhooks",
        "idempotency_key": key,
        "event_type": "webhook",
        "content_type": "application/json",
        "headers": None,
        "attempts": 1,
        "unsettled": 0,
        "lane": None,
        "source_sequence": None,
        "source_emitted_at": None,
        "created_at": NOON,
        "replayed_at": None,
        "request_id": None,
        "payload": b"{}",
    }
    return Claim(**{**given, **more})


def registration(
    handler: Callable[..., Any], pattern: str = "*", source: str | None = None, **limits: Any
) -> Registration:
    given = {"max_attempts": None, "timeout": None, "concurrency": None, **limits}
    return describe(handler, pattern, source, **given)


def registry(*registrations: Registration) -> Registry:
    made = Registry()
    for item in registrations:
        made.add(item)
    return made


def executor(**more: Any) -> Executor:
    """Return an executor; a test may override any field of its policy and any other argument."""
    policy: dict[str, Any] = {
        "backoff": lambda attempts: timedelta(seconds=10 * attempts),
        "max_attempts": 5,
        "timeout": MINUTE,
        "snooze_max_age": timedelta(days=7),
    }
    policy = {name: more.pop(name, value) for name, value in policy.items()}
    given = {"clock": lambda: NOON, "logger": lambda claim: structlog.get_logger(), **more}
    return Executor(policy=RunPolicy(**policy), **given)


class CountedBacklog:
    """Records what a worker tells ingest: the events that it took off the backlog."""

    def __init__(self) -> None:
        self.claimed: list[int] = []

    def note_claimed(self, events: int) -> None:
        self.claimed.append(events)


class ScriptedQueue:
    """A queue that returns the claims that a test put in, and records what was settled."""

    def __init__(self) -> None:
        self.due: deque[Claim] = deque()
        self.suspects: deque[Claim] = deque()
        self.requests: list[tuple[int, Caps]] = []
        self.settled: list[Settlement] = []
        self.batches: list[int] = []
        self.failures: deque[Exception] = deque()
        self.claim_failures: deque[Exception] = deque()
        self.lost: set[tuple[EventId, int]] = set()
        self.changed = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    def put(self, *claims: Claim) -> None:
        for claim in claims:
            (self.suspects if claim.unsettled >= SUSPECT else self.due).append(claim)
        self.changed.set()

    def outcomes(self) -> dict[str, Outcome]:
        return {item.claim.id: item.outcome for item in self.settled}

    async def claim(
        self, worker: WorkerId, *, limit: int, lease: timedelta, caps: Caps
    ) -> list[Claim]:
        self.changed.clear()  # as in the stores: a wake-up during the claim is not lost
        await self.open.wait()
        if self.claim_failures:
            raise self.claim_failures.popleft()
        self.requests.append((limit, caps))
        return [self.due.popleft() for _ in range(min(limit, len(self.due)))]

    async def claim_these(
        self, worker: WorkerId, ids: Sequence[EventId], *, limit: int, lease: timedelta
    ) -> list[Claim]:
        raise AssertionError("a worker never claims events by id")

    async def suspect(self) -> Suspect | None:
        if self.suspects:
            first = self.suspects[0]
            known = (first.id, first.source, first.event_type, first.attempts, first.unsettled)
            return Suspect(*known)
        return None

    async def claim_suspect(
        self, worker: WorkerId, event_id: EventId, *, lease: timedelta
    ) -> Claim | None:
        return self.suspects.popleft() if self.suspects else None

    async def renew(self, claims: Sequence[Claim], *, lease: timedelta) -> AbstractSet[EventId]:
        return {c.id for c in claims if (c.id, c.run) not in self.lost}

    async def settle(self, settlements: Sequence[Settlement]) -> Mapping[EventId, Outcome]:
        await self.open.wait()
        if self.failures:
            raise self.failures.popleft()
        self.batches.append(len(settlements))
        self.settled += settlements
        self.changed.set()
        return {s.claim.id: s.outcome for s in settlements}

    async def wait(self, timeout: timedelta) -> None:
        await self.changed.wait()
