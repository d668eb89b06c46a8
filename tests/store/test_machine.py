"""A state machine over the store and worker-like steps, against a small model (F17, F18, F32)."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackbox.model import Caps, Claim, Done, Outcome, Release, Settlement, to_text
from ackbox.stores.sqlite.store import SqliteStore
from support.backends import Row, all_rows, open_sqlite
from support.clock import HandMoved
from support.events import envelope
from support.work import LEASE, Hands, boom, dead, done

T = TypeVar("T")

INSERT = "INSERT INTO mine (id, run) VALUES (:id, :run)"
WRONG = "INSERT INTO nowhere VALUES (:id, :run)"
SCHEMA = ["CREATE TABLE IF NOT EXISTS mine (id TEXT, run INTEGER)"]
ENDS = ("done", "effects", "bad effects", "retry", "dead", "release", "held")
DELAY = timedelta(seconds=5)


class Model:
    """What the ledger must say of one event."""

    def __init__(self, lane: str | None, created: datetime) -> None:
        self.lane = lane
        self.status = "pending"
        self.outcome: str | None = None
        self.attempts = self.run = self.unsettled = 0
        self.due: datetime = created
        self.created = created
        self.retry_after: datetime | None = None
        self.effects: list[int] = []

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "processing")

    @property
    def is_suspect(self) -> bool:
        return self.unsettled + (self.status == "processing") >= 2

    def claim(self, now: datetime) -> None:
        self.unsettled += self.status == "processing"
        self.status = "processing"
        self.run += 1
        self.attempts += 1
        self.due = now + LEASE

    def settle(self, end: str, now: datetime) -> None:
        self.unsettled = 0
        match end:
            case "done" | "effects":
                self._close("completed", "handled")
                self.effects += [self.run] if end == "effects" else []
            case "retry" | "bad effects":
                self.status, self.outcome = "pending", "retry"
                self.due = self.retry_after = now + DELAY
            case "dead":
                self._close("failed", "dead")
            case _:
                self.status = "pending"
                self.attempts -= 1
                self.outcome = "held" if end == "held" else None
                self.due = self.retry_after or self.created

    def _close(self, status: str, outcome: str) -> None:
        self.status, self.outcome, self.retry_after = status, outcome, None


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.clock = HandMoved()
        self.model: dict[str, Model] = {}
        self.claims: list[Claim] = []
        self.do(self._open())

    async def _open(self) -> None:
        path = Path(self.folder.name) / "ledger.db"
        self.store: SqliteStore = await open_sqlite(path, durability="normal", clock=self.clock)
        self.me = Hands(self.store.queue)
        await self.store.apply_schema(SCHEMA)
        await self.store.recover()

    def do(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.do(self.store.close())
            self.loop.close()
            self.folder.cleanup()

    @rule(keys=st.lists(st.integers(0, 15), min_size=1, max_size=4), lane=st.sampled_from("ab-"))
    def record(self, keys: list[int], lane: str) -> None:
        in_lane = None if lane == "-" else lane
        for key in keys:
            self.model.setdefault(str(key), Model(in_lane, self.clock()))
        sent = [envelope(str(key), at=self.clock(), lane=in_lane) for key in keys]
        self.do(self.store.record(sent))

    @rule(limit=st.integers(1, 5), holds=st.booleans())
    def claim(self, limit: int, holds: bool) -> None:
        caps = Caps(share=100, held={"webhooks": 1} if holds else {})
        claims = self.do(self.me.claim(limit, caps=caps))
        expected = self._claimable()
        suspects = [key for key in expected if self.model[key].is_suspect]
        if suspects:
            assert len(claims) == (0 if holds else 1)
            assert {claim.idempotency_key for claim in claims} <= set(suspects)
        else:
            assert len(claims) == min(limit, len(expected))
        for claim in claims:
            assert claim.idempotency_key in expected
            event = self.model[claim.idempotency_key]
            event.claim(self.clock())
            assert (claim.run, claim.attempts) == (event.run, event.attempts)
            assert claim.unsettled == event.unsettled
        self.claims += claims

    def _claimable(self) -> list[str]:
        return [key for key in self.model if self._is_claimable(key)]

    def _is_claimable(self, key: str) -> bool:
        event = self.model[key]
        due = event.is_open and event.outcome != "held" and event.due <= self.clock()
        return due and (event.lane is None or self._head(event.lane) == key)

    def _head(self, lane: str) -> str | None:
        """The oldest unsettled one; who is held stands aside."""
        mine = [key for key, event in self.model.items() if event.lane == lane and event.is_open]
        free = [key for key in mine if not self._is_held(key)]
        return free[0] if free else None

    def _is_held(self, key: str) -> bool:
        return self.model[key].status == "pending" and self.model[key].outcome == "held"

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), end=st.sampled_from(ENDS))
    def settle(self, data: st.DataObject, end: str) -> None:
        """Any claim ever given, be it lost or settled long ago."""
        claim = data.draw(st.sampled_from(self.claims))
        written = self.do(self.me.queue.settle([Settlement(claim, self._outcome(end, claim))]))
        event = self.model[claim.idempotency_key]
        holds = event.status == "processing" and event.run == claim.run
        if holds:
            event.settle(end, self.clock())
            assert set(written) == {claim.id}
        else:
            assert set(written) <= ({claim.id} if event.run == claim.run else set())

    def _outcome(self, end: str, claim: Claim) -> Outcome:
        values: dict[str, Any] = {"id": claim.idempotency_key, "run": claim.run}
        outcomes: dict[str, Outcome] = {
            "done": Done("handled"),
            "effects": done(INSERT, **values),
            "bad effects": done(INSERT, WRONG, otherwise=boom("tx", after=DELAY), **values),
            "retry": boom(after=DELAY),
            "dead": dead(),
            "release": Release(),
            "held": Release(held=True),
        }
        return outcomes[end]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claims = data.draw(st.lists(st.sampled_from(self.claims), min_size=1, max_size=4))
        kept = self.do(self.me.queue.renew(claims, lease=LEASE))
        for claim in claims:
            event = self.model[claim.idempotency_key]
            holds = event.status == "processing" and event.run == claim.run
            assert (claim.id in kept) == (holds or self._other_holds(claims, claim, event))
            if holds:
                event.due = self.clock() + LEASE

    @staticmethod
    def _other_holds(claims: list[Claim], claim: Claim, event: Model) -> bool:
        """Another run of the same event is in this call, and holds."""
        runs = {c.run for c in claims if c.id == claim.id}
        return event.status == "processing" and event.run in runs

    @rule()
    def crash_and_restart(self) -> None:
        self.do(self.store.close())
        self.do(self._open())
        for event in self.model.values():
            if event.status == "processing":
                event.due = self.clock()

    @rule(seconds=st.sampled_from([1, 5, 29, 31, 3600]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = self.do(self._rows())
        assert {row["idempotency_key"] for row in rows} == set(self.model)
        for row in rows:
            self._compare(row, self.model[row["idempotency_key"]])

    def _compare(self, row: Row, event: Model) -> None:
        seen = (row["status"], row["outcome"], row["attempts"], row["run"], row["unsettled"])
        assert seen == (event.status, event.outcome, event.attempts, event.run, event.unsettled)
        running = event.status == "processing"
        assert (row["lease_until"] is not None) == running
        assert (row["processor_id"] is not None) == running
        if row["claimable_at"] is not None:
            assert row["claimable_at"] == to_text(event.due)

    @invariant()
    def effects_are_exactly_those_of_completed_runs(self) -> None:
        if not hasattr(self, "store"):
            return
        found = self.do(self._mine())
        expected = [(key, run) for key, event in self.model.items() for run in event.effects]
        assert sorted(found) == sorted(expected)

    async def _rows(self) -> list[Row]:
        return await self.store._writer.submit(all_rows)

    async def _mine(self) -> list[Any]:
        sql = "SELECT id, run FROM mine"
        return await self.store._writer.submit(lambda c: c.execute(sql).fetchall())


LedgerMachine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLedgerMachine = LedgerMachine.TestCase
