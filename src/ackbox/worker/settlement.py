"""Settle the outcomes of runs in batches: while one batch commits, the next is collected."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from ackbox.errors import OUTAGES, AckboxError
from ackbox.model import Claim, Outcome, Release, Settlement
from ackbox.ports import EventQueue
from ackbox.telemetry import Observer, Settled, WorkerCallFailed
from ackbox.worker.admission import Admission
from ackbox.worker.backlog import Backlog

_RETRY_SECONDS = 0.5
_BATCH = 500
_LOOP_ITERATIONS = 3
_DEFER_SECONDS = 0.05


class Ended(Struct, frozen=True):
    """The end of a run: its outcome, its seconds, and its handler (None if no handler ran)."""

    settlement: Settlement
    seconds: float
    handler: str | None


class Settler:
    """Writes outcomes to the store, and drops their claims. `released` counts the events that went
    back to the queue. `defer_seconds` is the longest time that an outcome waits for a claim whose
    commit it could share."""

    def __init__(
        self,
        queue: EventQueue,
        admission: Admission[Any],
        backlog: Backlog,
        *,
        observe: Observer,
        retry_seconds: float = _RETRY_SECONDS,
        defer_seconds: float = _DEFER_SECONDS,
    ) -> None:
        self.released = 0
        self._queue = queue
        self._admission = admission
        self._backlog = backlog
        self._observe = observe
        self._retry_seconds = retry_seconds
        self._defer_seconds = defer_seconds
        self._outbox: list[Ended] = []
        self._wake = asyncio.Event()
        self._settling = asyncio.Lock()
        self._deferred = False
        self._flush_now = False

    def add(
        self, claim: Claim, outcome: Outcome, seconds: float = 0.0, handler: str | None = None
    ) -> None:
        """Queue an outcome; `handler` is the handler that ran for `seconds`, if one ran."""
        self._outbox.append(Ended(Settlement(claim, outcome), seconds, handler))
        if not self._deferred or len(self._outbox) >= _BATCH:
            self._wake.set()

    def has(self, claim: Claim) -> bool:
        return any(ended.settlement.claim is claim for ended in self._outbox)

    async def settle_next(self) -> None:
        """Wait for outcomes, then settle them.

        Quick handlers end one after the other. To wait a few iterations of the event loop for their
        outcomes costs less than a commit for each outcome, and the next claim may share the commit.
        """
        await self._wake.wait()
        size = 0
        while not self._flush_now and size < len(self._outbox) < _BATCH:
            size = len(self._outbox)
            for _ in range(_LOOP_ITERATIONS):
                await asyncio.sleep(0)
        await self._settle_batch()

    async def flush(self, within: float) -> None:
        """Settle all queued outcomes. If the store does not respond, give up after `within`
        seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._outbox or self._settling.locked():
                    await self._settle_batch()

    @asynccontextmanager
    async def share_commit_with_claim(self) -> AsyncIterator[None]:
        """Let a claim statement share its commit with the settlements before it.

        Outcomes that are queued now go to the store together with the claim that the caller sends
        inside this context. Outcomes that are added meanwhile wait until the claim has returned, at
        most for `defer_seconds`, so that they can share the commit of the next claim.
        """
        if self._outbox:
            self._flush_now = True
            self._wake.set()
        self._deferred = True
        timer = asyncio.get_running_loop().call_later(self._defer_seconds, self._end_deferral)
        try:
            await asyncio.sleep(0)  # `settle_next` sends its batch first
            yield
        finally:
            timer.cancel()
            self._end_deferral()

    def _end_deferral(self) -> None:
        self._deferred = False
        if self._outbox:
            self._wake.set()

    async def _settle_batch(self) -> None:
        async with self._settling:
            self._flush_now = False
            batch, self._outbox = self._outbox[:_BATCH], self._outbox[_BATCH:]
            if not self._outbox:
                self._wake.clear()
            if batch:
                await self._settle(batch)

    async def _settle(self, batch: list[Ended]) -> None:
        try:
            written = await self._queue.settle([ended.settlement for ended in batch])
        except OUTAGES as error:
            await self._keep(batch, error)
        except Exception as error:  # noqa: BLE001 - a supervised loop: recorded, then it continues
            await self._isolate(batch, error)
        else:
            claims = [ended.settlement.claim for ended in batch]
            self._admission.drop(claims)
            if released := [o for o in written.values() if isinstance(o, Release)]:
                self._put_back(released)
            seconds = [ended.seconds for ended in batch]
            self._observe(Settled(claims, seconds, written, [ended.handler for ended in batch]))

    def _put_back(self, released: Sequence[Release]) -> None:
        """Count released events in the backlog again; parked events do not wait for a worker."""
        self.released += len(released)
        self._backlog.note_claimed(-sum(not outcome.parked for outcome in released))

    async def _keep(self, batch: list[Ended], error: AckboxError) -> None:
        """Queue the batch again and wait a moment: no outcome is lost while the store is away."""
        self._outbox = batch + self._outbox
        self._wake.set()
        self._observe(WorkerCallFailed("settle", str(error)))
        await asyncio.sleep(self._retry_seconds)

    async def _isolate(self, batch: list[Ended], error: Exception) -> None:
        """Settle each outcome alone, and drop an outcome that cannot be written.

        The lease of a dropped outcome expires. The event is then claimed again with its attempt
        refunded, and if this repeats, the event becomes a suspect.
        """
        if len(batch) > 1:
            for ended in batch:
                await self._settle([ended])
            return
        self._admission.drop([ended.settlement.claim for ended in batch])
        self._observe(WorkerCallFailed("settle", str(error)))
