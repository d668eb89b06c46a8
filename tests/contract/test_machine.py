"""A state machine over the store and the steps of workers, operators and retention, against a small
model (F15, F17, F18, F25, F31, F32, N5, N14)."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar
from unittest import TestCase

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ackbox.model import (
    Caps,
    Claim,
    DiscardKind,
    Done,
    EventId,
    Outcome,
    OutcomeName,
    Release,
    ReplayKind,
    RetentionPolicy,
    Settlement,
    Snoozed,
    Status,
    to_text,
)
from ackbox.ports import Store
from support.databases.valkey import ValkeyServer
from support.ledgers.backends import BACKENDS, Backend, Row, Server
from support.ledgers.events import envelope, record_in
from support.ledgers.redis_backend import RedisBackend
from support.workers.queue_worker import LEASE, QueueWorker, dead, done, retry_later

T = TypeVar("T")

INSERT = "INSERT INTO mine (id, run) VALUES (:id, :run)"
WRONG = "INSERT INTO nowhere VALUES (:id, :run)"
SCHEMA = ["CREATE TABLE IF NOT EXISTS mine (id TEXT, run INTEGER)"]
STEPS = (
    *("record", "record", "claim", "claim", "claim", "claim_suspect", "settle", "settle", "settle"),
    "renew",
    *("replay", "replay", "discard", "retention_passes", "retention_passes"),
    *("time_passes", "time_passes", "crash_and_restart"),
)
ENDS = ("done", "done", "effects", "bad effects", "retry", "dead", "release", "parked", "snooze")
DELAY = timedelta(seconds=5)
POLICY = RetentionPolicy(
    keep=timedelta(seconds=20),
    keep_after_end=timedelta(seconds=5),
    delete_delay=timedelta(seconds=5),
    keep_keys=timedelta(seconds=30),
    keep_dead_letters=timedelta(seconds=40),
)


class Model:
    """The expected state of one event."""

    def __init__(self, event_id: EventId, lane: str | None, created: datetime) -> None:
        self.id = event_id
        self.lane = lane
        self.status = "pending"
        self.outcome: str | None = None
        self.attempts = self.run = self.unsettled = 0
        self.due: datetime = created
        self.created = self.updated = created
        self.retry_after: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "processing")

    @property
    def is_parked(self) -> bool:
        return self.status == "pending" and self.outcome == "parked"

    @property
    def is_suspect(self) -> bool:
        return self.unsettled + (self.status == "processing") >= 2

    def claim(self, now: datetime) -> None:
        """Refund the attempt of a lost run, unless that run was a suspect's (S9)."""
        taken_over = self.status == "processing"
        self.attempts += not taken_over or self.unsettled >= 2
        self.unsettled += taken_over
        self.status = "processing"
        self.run += 1
        self.due, self.updated = now + LEASE, now

    def settle(self, end: str, now: datetime) -> None:
        self.unsettled = min(self.unsettled, 2) if end in ("release", "parked") else 0
        self.updated = now
        match end:
            case "done" | "effects":
                self._close("completed", "handled")
            case "retry" | "bad effects":
                self.status, self.outcome = "pending", "retry"
                self.due = self.retry_after = now + DELAY
            case "snooze":
                self.status, self.outcome = "pending", "snoozed"
                self.attempts -= 1
                self.due = self.retry_after = now + DELAY
            case "dead":
                self._close("failed", "dead")
            case _:
                self.status = "pending"
                self.attempts -= 1
                self.outcome = "parked" if end == "parked" else None
                self.due = self.retry_after or self.created

    def replay(self, now: datetime, completed: bool) -> ReplayKind:
        if self.status == "processing":
            return ReplayKind.RUNNING
        if self.status == "completed" and not completed:
            return ReplayKind.COMPLETED
        if self.is_parked:
            kind, self.outcome = ReplayKind.UNPARKED, None
            self.due = self.retry_after or self.created
        elif self.status == "pending" and self.due > now:
            kind, self.due, self.retry_after = ReplayKind.EXPEDITED, now, now
        elif self.status == "pending":
            return ReplayKind.WAITING
        else:
            kind, self.status, self.outcome = ReplayKind.REPLAYED, "pending", "replayed"
            self.attempts = self.unsettled = 0
            self.due = self.retry_after = now
        self.updated = now
        return kind

    def discard(self, now: datetime) -> DiscardKind:
        if self.status == "processing":
            return DiscardKind.RUNNING
        if self.status == "completed":
            return DiscardKind.COMPLETED
        self._close("completed", "discarded")
        self.unsettled, self.updated = 0, now
        return DiscardKind.DISCARDED

    def recover(self, now: datetime) -> None:
        """End a lease. An event written in the future waits for no longer than its delay."""
        if self.is_open and self.updated > now:
            delay = max((self.retry_after or self.created) - self.updated, timedelta(0))
            self.due = self.retry_after = now + delay
            self.updated = now
        if self.status == "processing":
            self.due = now

    def is_old(self, now: datetime) -> bool:
        """Return whether retention may delete the event; it was last updated when it finished."""
        rested = self.updated < now - POLICY.keep_after_end
        keep = POLICY.keep_of(Status(self.status))
        return not self.is_open and self.created < now - keep and rested

    def _close(self, status: str, outcome: str) -> None:
        self.status, self.outcome, self.retry_after = status, outcome, None


class Tombstone:
    """A tombstone of an event whose row may still exist."""

    def __init__(self, event_id: EventId, at: datetime) -> None:
        self.id = event_id
        self.at = at
        self.has_row = True


class LedgerMachine(RuleBasedStateMachine):
    name: ClassVar[str]
    servers: ClassVar[dict[str, Server]] = {}

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.backend = self.make_backend()
        self.clock = self.backend.clock
        self.model: dict[str, Model] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.effects: list[tuple[str, int]] = []
        self.claims: list[Claim] = []
        self.was_full = False
        self.do(self._open())

    def make_backend(self) -> Backend:
        return BACKENDS[self.name](Path(self.folder.name), self.servers["real"])

    async def _open(self) -> None:
        await self.backend.open()
        self.store: Store = self.backend.store
        self.me = QueueWorker(self.store.queue)
        await self.store.apply_tables(SCHEMA)

    def do(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.do(self.backend.close())
            self.loop.close()
            self.folder.cleanup()

    @rule(step=st.sampled_from(STEPS), data=st.data())
    def step(self, step: str, data: st.DataObject) -> None:
        """Take one step. With a rule for each step, Hypothesis leaves some rules out of each
        example, and nine in ten examples had no claim."""
        getattr(self, step)(data)

    def record(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
        in_lane = data.draw(st.sampled_from(["a", "b", None]))
        sent = [envelope(str(key), at=self.clock(), lane=in_lane) for key in keys]
        receipts = self.do(record_in(self.store, sent))
        for item, receipt in zip(sent, receipts, strict=True):
            key = item.idempotency_key
            if key not in self.model and key not in self.tombstones:
                self.model[key] = Model(item.id, in_lane, self.clock())
            known = self.model.get(key) or self.tombstones[key]
            assert receipt.id == known.id

    def claim(self, data: st.DataObject) -> None:
        limit, holds = data.draw(st.integers(1, 5)), data.draw(st.booleans())
        caps = Caps(share=100, held={"webhooks": 1} if holds else {})
        claims = self.do(self.me.claim(limit, caps=caps))
        expected = [key for key in self._claimable() if not self.model[key].is_suspect]
        keys = [claim.idempotency_key for claim in claims]
        assert set(keys) <= set(expected)
        self.check_number(len(keys), min(limit, len(expected)))
        self.was_full = len(claims) == limit
        for claim in claims:
            self._note_claim(claim)

    def check_number(self, claimed: int, due: int) -> None:
        """Check that every due event was claimed, up to the limit."""
        assert claimed == due

    def claim_suspect(self, data: st.DataObject) -> None:  # S9
        due = [key for key in self._claimable() if self.model[key].is_suspect]
        suspect = self.do(self.me.queue.suspect())
        assert (suspect is None) == (not due)
        if suspect is None:
            return
        claim = self.do(self.me.queue.claim_suspect(self.me.name, suspect.id, lease=LEASE))
        assert claim is not None
        assert claim.idempotency_key in due
        self._note_claim(claim)
        assert (claim.attempts, claim.unsettled) == (suspect.attempts, suspect.unsettled)

    def _note_claim(self, claim: Claim) -> None:
        event = self.model[claim.idempotency_key]
        event.claim(self.clock())
        assert (claim.run, claim.attempts) == (event.run, event.attempts)
        assert claim.unsettled == event.unsettled
        self.claims.append(claim)

    def _claimable(self) -> list[str]:
        return [key for key in self.model if self._is_claimable(key)]

    def _is_claimable(self, key: str) -> bool:
        event = self.model[key]
        due = event.is_open and event.outcome != "parked" and event.due <= self.clock()
        return due and (event.lane is None or self._head(event.lane) == key)

    def _head(self, lane: str) -> str | None:
        """Return the running event, else the oldest unsettled event, parked or not."""  # S10
        mine = [key for key, event in self.model.items() if event.lane == lane and event.is_open]
        running = [key for key in mine if self.model[key].status == "processing"]
        assert len(running) <= 1
        return next(iter(running + mine), None)

    def _event_of(self, claim: Claim) -> Model | None:
        """Return the event of the claim if its row still exists: a purged key may have been
        recorded again."""
        event = self.model.get(claim.idempotency_key)
        return event if event is not None and event.id == claim.id else None

    def settle(self, data: st.DataObject) -> None:
        """Settle any earlier claim, even one that was lost or settled long ago."""
        if not self.claims:
            return
        claim, end = data.draw(st.sampled_from(self.claims)), data.draw(st.sampled_from(ENDS))
        written = self.do(self.me.queue.settle([Settlement(claim, self._outcome(end, claim))]))
        event = self._event_of(claim)
        if event is None or event.run != claim.run:
            assert not written
        elif event.status == "processing":
            event.settle(end, self.clock())
            self.effects += [(claim.id, claim.run)] if end == "effects" else []
            assert set(written) == {claim.id}
        else:
            assert set(written) <= {claim.id}

    def _outcome(self, end: str, claim: Claim) -> Outcome:
        values: dict[str, Any] = {"id": claim.id, "run": claim.run}
        outcomes: dict[str, Outcome] = {
            "done": Done("handled"),
            "effects": done(INSERT, **values),
            "bad effects": done(
                INSERT, WRONG, on_effect_failure=retry_later("tx", after=DELAY), **values
            ),
            "retry": retry_later(after=DELAY),
            "dead": dead(),
            "release": Release(),
            "parked": Release(parked=True),
            "snooze": Snoozed(DELAY),
        }
        return outcomes[end]

    def renew(self, data: st.DataObject) -> None:
        if not self.claims:
            return
        claims = data.draw(st.lists(st.sampled_from(self.claims), min_size=1, max_size=4))
        kept = self.do(self.me.queue.renew(claims, lease=LEASE))
        held: set[EventId] = set()
        for claim in claims:
            event = self._event_of(claim)
            if event is not None and event.status == "processing" and event.run == claim.run:
                event.due = self.clock() + LEASE
                held.add(claim.id)
        assert kept == held

    def replay(self, data: st.DataObject) -> None:
        if not self.model:
            return
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=4))
        completed = data.draw(st.booleans())
        events = {key: self.model[key] for key in keys}
        ids = [self.model[key].id for key in keys]
        done = self.do(self.store.replay(ids, actor="tester", completed=completed))
        now = self.clock()
        assert done == {event.id: event.replay(now, completed) for event in events.values()}
        for key, event in events.items():
            if done[event.id] is ReplayKind.REPLAYED:
                self.tombstones.pop(key, None)

    def discard(self, data: st.DataObject) -> None:
        if not self.model:
            return
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=3))
        events = {key: self.model[key] for key in keys}
        done = self.do(self.store.discard([self.model[key].id for key in keys], actor="tester"))
        assert done == {event.id: event.discard(self.clock()) for event in events.values()}
        for key, event in events.items():
            if done[event.id] is DiscardKind.DISCARDED:
                self.tombstones.pop(key, None)

    def retention_passes(self, data: st.DataObject) -> None:
        self._add_tombstones()
        if data.draw(st.booleans()):
            self.clock.advance(seconds=POLICY.delete_delay.total_seconds())
        self._prune()
        self._purge_tombstones()

    def _add_tombstones(self) -> None:
        now = self.clock()
        old = [key for key, event in self.model.items() if event.is_old(now)]
        fresh = [key for key in old if key not in self.tombstones]
        dead = [key for key in fresh if self.model[key].status == "failed"]
        assert self.do(self.store.add_tombstones(POLICY, Status.FAILED, after=0)).rows == len(dead)
        assert self.do(self.store.add_tombstones(POLICY, Status.COMPLETED, after=0)).rows == len(
            fresh
        ) - len(dead)
        self.tombstones.update({key: Tombstone(self.model[key].id, now) for key in fresh})

    def _prune(self) -> None:
        """Delete rows with old tombstones. Such an event has not changed: a replay removes its
        tombstone."""
        now = self.clock()
        waiting = {key: stone for key, stone in self.tombstones.items() if stone.has_row}
        prunable = {
            key: stone for key, stone in waiting.items() if stone.at <= now - POLICY.delete_delay
        }
        pruned = self.do(self.store.prune(POLICY))
        assert (pruned.rows, pruned.waiting) == (len(prunable), len(prunable) < len(waiting))
        for key, stone in prunable.items():
            assert not self.model.pop(key).is_open
            stone.has_row, stone.at = False, now

    def _purge_tombstones(self) -> None:
        before = self.clock() - POLICY.keep_keys
        closed = {key: stone for key, stone in self.tombstones.items() if not stone.has_row}
        gone = [key for key, stone in closed.items() if stone.at < before]
        assert self.do(self.store.purge(POLICY)).tombstones == len(gone)
        for key in gone:
            del self.tombstones[key]

    def crash_and_restart(self, data: st.DataObject) -> None:
        """Restart; leases stay valid, because other instances may be alive."""
        self.do(self.backend.close())
        self.do(self._open())

    def time_passes(self, data: st.DataObject) -> None:
        self.clock.advance(seconds=data.draw(st.sampled_from([1, 6, 31, 3700])))

    @invariant()
    def the_ledger_equals_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = self.do(self.backend.rows())
        assert {row["idempotency_key"] for row in rows} == set(self.model)
        for row in rows:
            key = row["idempotency_key"]
            self._compare(row, self.model[key])
            assert row["claimable_at"] is not None or not self._is_claimable(key)

    def _compare(self, row: Row, event: Model) -> None:
        assert row["outcome"] in (None, *OutcomeName)
        seen = (row["status"], row["outcome"], row["attempts"], row["run"], row["unsettled"])
        assert seen == (event.status, event.outcome, event.attempts, event.run, event.unsettled)
        running = event.status == "processing"
        assert (row["lease_until"] is not None) == running
        assert (row["processor_id"] is not None) == running
        if row["claimable_at"] is not None:
            assert row["claimable_at"] == to_text(event.due)

    @invariant()
    def the_kept_counts_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        real = Counter(event.status for event in self.model.values())
        kept = self.do(self.backend.reader.stats(self.backend.clock())).counts
        assert dict(kept) == {status: real[status] for status in Status}

    @invariant()
    def the_tombstones_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        sql = "SELECT idempotency_key, id, ledger_id IS NOT NULL, tombstoned_at FROM tombstones"
        expected = [(k, s.id, s.has_row, to_text(s.at)) for k, s in self.tombstones.items()]
        assert sorted(self.do(self.backend.fetch(sql))) == sorted(expected)

    @invariant()
    def effects_are_exactly_those_of_completed_runs(self) -> None:
        if not hasattr(self, "store"):
            return
        effects = self.do(self.backend.fetch("SELECT id, run FROM mine"))
        assert sorted(effects) == sorted(self.effects)


class SqliteMachine(LedgerMachine):
    name = "sqlite"

    def crash_and_restart(self, data: st.DataObject) -> None:
        """Restart, perhaps with a clock that was set back. Only one process can open the file, so
        all leases end."""
        self.do(self.backend.close())
        self.clock.advance(seconds=-data.draw(st.sampled_from([0, 0, 3600])))
        self.do(self._open())
        for event in self.model.values():
            event.recover(self.clock())


class PostgresMachine(LedgerMachine):
    def check_number(self, claimed: int, due: int) -> None:
        """Allow a claim after a full claim to continue after its cursor: it may miss events before
        the cursor for a second, but it never claims nothing."""
        if self.was_full and claimed:
            assert claimed <= due
        else:
            super().check_number(claimed, due)


class Postgres16Machine(PostgresMachine):
    name = "postgres-16"


class Postgres18Machine(PostgresMachine):
    name = "postgres-18"


class RedisMachine(LedgerMachine):
    """Each restart finds an empty stream, as if the stream had been lost (F11)."""

    valkeys: ClassVar[list[ValkeyServer]] = []

    def make_backend(self) -> Backend:
        return RedisBackend(self.servers["real"], self.valkeys[0])

    def check_number(self, claimed: int, due: int) -> None:
        """Allow fewer claims than due events: the stream may carry a few of them, and the database
        queue finds the others a second later."""
        assert bool(claimed) or not due


@pytest.fixture(autouse=True, scope="module")
def _servers(postgres_of: Server, valkey: ValkeyServer) -> None:
    LedgerMachine.servers["real"] = postgres_of
    RedisMachine.valkeys[:] = [valkey]


def make_case(machine: type[LedgerMachine], examples: int) -> type[TestCase]:
    case: type[TestCase] = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=examples,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestSqliteMachine = make_case(SqliteMachine, 40)
TestPostgres16Machine = make_case(Postgres16Machine, 8)
TestPostgres18Machine = make_case(Postgres18Machine, 8)
TestRedisMachine = make_case(RedisMachine, 6)
