"""An inbox on a temporary file: post, run, crash, read."""

import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ackbox.app import App
from ackbox.config import Given, read_overrides
from ackbox.errors import Stopped
from ackbox.inbox import Inbox
from ackbox.model import (
    Claim,
    EventFilter,
    EventId,
    EventRecord,
    Order,
    Receipt,
    Status,
    Submission,
)
from ackbox.runtime import Runtime
from ackbox.testing.clock import MovableClock
from ackbox.testing.delivery import Delivery, make_envelope
from ackbox.testing.steps import Stepper, raise_for_a_test

_AT_ONCE = 1000
_PAGE = 200
_RUN_LIMIT = 10_000
_UNBOUNDED = 1_000_000_000
_FOR_EVER = 36_500.0


class InboxHarness:
    """Your inbox with its handlers and tables, without background work. Use it as `async with
    InboxHarness(inbox) as box`. Handlers run when you call a method, one at a time, by `box.clock`.

    The call that ran a handler raises what the handler raised, after the run is settled. `Retry`,
    `Snooze` and `Dead` are decisions, not errors. With `raise_errors=False` nothing is raised."""

    def __init__(self, inbox: Inbox, *, start: datetime | None = None) -> None:
        self.clock = MovableClock() if start is None else MovableClock(start)
        self._inbox = inbox
        self._random = random.Random(0)
        self._keys = 0
        self._folder = AsyncExitStack()
        self._process = AsyncExitStack()
        self._overrides: dict[str, Given] = {}
        self._runtime: Runtime | None = None

    async def __aenter__(self) -> Self:
        folder = self._folder.enter_context(tempfile.TemporaryDirectory(prefix="ackbox-"))
        self._overrides = _overrides_for_a_test(Path(folder))
        try:
            await self._start()
        except BaseException:
            await self._folder.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stop()
        await self._folder.aclose()

    async def post(
        self,
        event_type: str,
        payload: Any = None,
        *,
        key: str | None = None,
        lane: str | None = None,
        source: str = "webhooks",
        source_sequence: int | None = None,
        source_emitted_at: datetime | None = None,
    ) -> Receipt:
        """Post an event. It is durable on return. `receipt.kind` shows whether `key` was known."""
        delivery = Delivery(
            event_type=event_type,
            payload=payload,
            key=self._next_key() if key is None else key,
            lane=lane,
            source=source,
            source_sequence=source_sequence,
            source_emitted_at=source_emitted_at,
        )
        (receipt,) = await self.deliver([delivery])
        return receipt

    async def deliver(
        self, deliveries: Sequence[Delivery], *, times: int = 1, shuffle: int | None = None
    ) -> list[Receipt]:
        """Post each delivery `times` times; with `shuffle`, in an order drawn from that seed.
        Return the first receipt of each, in the order given."""
        order = [index for index in range(len(deliveries)) for _ in range(times)]
        if shuffle is not None:
            random.Random(shuffle).shuffle(order)
        first: dict[int, Receipt] = {}
        for index in order:
            envelope = make_envelope(deliveries[index], self.clock(), self._random.getrandbits)
            (receipt,) = await self.runtime.ingest.submit(Submission((envelope,)))
            first.setdefault(index, receipt)
        return [first[index] for index in range(len(deliveries))]

    async def run_one(self, *, raise_errors: bool = True) -> EventRecord | None:
        """Run the event that has been due longest, and return it; None if nothing is due."""
        claims = await self._stepper.claim(1)
        await self._finish(claims, raise_errors)
        return await self.event(claims[0].id) if claims else None

    async def run_until_idle(self, *, shuffle: int | None = None, raise_errors: bool = True) -> int:
        """Run events until none is due, and return the number of runs. A retry that is due later
        waits for the clock. With `shuffle`, events that could run at the same time run in an order
        drawn from that seed; lanes keep their order."""
        shuffler = None if shuffle is None else random.Random(shuffle)
        runs = 0
        while claims := await self._stepper.claim(1 if shuffler is None else _AT_ONCE):
            if shuffler is not None:
                shuffler.shuffle(claims)
            await self._finish(claims, raise_errors)
            runs += len(claims)
            _check_runs(runs)
        return runs

    async def run_until_settled(
        self, *, shuffle: int | None = None, raise_errors: bool = True
    ) -> int:
        """Do as `run_until_idle`, and advance the clock to each retry or snooze, until every event
        is completed, a dead letter, or parked."""
        runs = await self.run_until_idle(shuffle=shuffle, raise_errors=raise_errors)
        while (due := await self._next_retry()) is not None:
            self.clock.move_to(due)
            runs += await self.run_until_idle(shuffle=shuffle, raise_errors=raise_errors)
            _check_runs(runs)
        return runs

    async def restart(self) -> None:
        """Stop in an orderly way, and start again on the same file."""
        await self._stop()
        await self._start()

    async def crash_after_claim(self) -> EventRecord:
        """Lose the process after it claimed the event that has been due longest, before its handler
        ran. Start again, and return the event, which is due at once."""
        claim = await self._claim_for_a_crash()
        return await self._lose_the_process(claim)

    async def crash_before_settle(self, *, raise_errors: bool = True) -> EventRecord:
        """Lose the process after the handler ran, before its outcome is stored. Writes through `tx`
        are lost; other effects have happened. Start again, and return the event."""
        claim = await self._claim_for_a_crash()
        stepper = self._stepper
        await stepper.run(claim)
        event = await self._lose_the_process(claim)
        raise_for_a_test(stepper.error if raise_errors else None)
        return event

    async def replay(self, event: str | Receipt) -> EventRecord:
        """Replay as an operator does: a finished event starts again, a waiting one is due now."""
        before = await self.event(event)
        await self.runtime.replays.replay_ids([before.id], actor="test", completed=True)
        return await self.event(before.id)

    async def event(self, event: str | Receipt) -> EventRecord:
        """Return the current state of an event, by its id or by the receipt of `post`."""
        event_id = event.id if isinstance(event, Receipt) else EventId(event)
        record = await self.runtime.reader.event(event_id)
        if record is None:
            raise LookupError(f"There is no event {event_id}.")
        return record

    async def events(self, status: str | None = None) -> list[EventRecord]:
        """Return all events, or those in one status, in the order of arrival."""
        where = EventFilter(status=None if status is None else Status(status))
        records: list[EventRecord] = []
        cursor: int | None = None
        while True:
            page = await self.runtime.reader.events(
                where, order=Order.OLDEST, limit=_PAGE, cursor=cursor
            )
            records += page.items
            if (cursor := page.next) is None:
                return records

    async def read(self, sql: str, /, **params: object) -> list[dict[str, Any]]:
        """Read your own tables, as `inbox.read` does."""
        return await self.runtime.reader.query(sql, params)

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise Stopped("The harness runs only inside `async with InboxHarness(inbox) as box:`.")
        return self._runtime

    async def _start(self) -> None:
        resolved = self._inbox.resolve(self._overrides, embedded=True)
        origin = resolved.ledger_origin
        app = App(resolved.settings, ledger_origin=origin, clock=self.clock, guest=True)
        self._runtime = await self._process.enter_async_context(self._inbox.running(app))
        self._stepper = Stepper(self._runtime)

    async def _stop(self) -> None:
        self._runtime = None
        await self._process.aclose()

    async def _finish(self, claims: Sequence[Claim], raise_errors: bool) -> None:
        error = await self._stepper.finish(claims)
        raise_for_a_test(error if raise_errors else None)

    async def _claim_for_a_crash(self) -> Claim:
        for claim in await self._stepper.claim(1):
            return claim
        raise LookupError(
            "No event is due, so no claim can be lost: post an event, or advance the clock."
        )

    async def _lose_the_process(self, claim: Claim) -> EventRecord:
        """Restart. A stop writes nothing for the claim, so the file is as after a crash."""
        await self.restart()
        return await self.event(claim.id)

    async def _next_retry(self) -> datetime | None:
        pending = await self.events(Status.PENDING)
        retries = [event.retry_after for event in pending if event.retry_after is not None]
        return min((moment for moment in retries if moment > self.clock()), default=None)

    def _next_key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"


def _check_runs(runs: int) -> None:
    """Stop a handler that always snoozes for a second: it would run for a week of the clock."""
    if runs > _RUN_LIMIT:
        raise RuntimeError(f"After {_RUN_LIMIT} runs there are still events due.")


def _overrides_for_a_test(folder: Path) -> dict[str, Given]:
    """Keep the ledger in a temporary file, and switch off background work and randomness."""
    settings = {
        "db_path": folder / "inbox.db",
        "database_url": None,
        "queue_url": None,
        "durability": "normal",
        "queue_maxsize": _UNBOUNDED,
        "retention_days": _FOR_EVER,
        "retry_jitter": "none",
        "worker_count": 0,
    }
    return read_overrides(settings, "InboxHarness")
