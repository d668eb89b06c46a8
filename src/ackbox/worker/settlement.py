"""Settle the outcomes of runs in batches: while one batch commits, the next is collected."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from ackbox.errors import OUTAGES, AckboxError
from ackbox.model import Claim, Outcome, Settlement
from ackbox.ports import EventQueue
from ackbox.telemetry import Observer, Settled, WorkerCallFailed

_RETRY_SECONDS = 0.5
_BATCH = 500
_LOOP_ITERATIONS = 3
_DEFER_SECONDS = 0.05

Sleep = Callable[[float], Awaitable[None]]

Entry = tuple[Settlement, float, str | None]
"""A settlement, the seconds of its run, and the handler that ran."""


class Settler:
    """Writes outcomes to the queue. `on_settled` is called with the claims that were settled, and
    with those that can never be settled."""

    def __init__(
        self,
        queue: EventQueue,
        *,
        observe: Observer,
        on_settled: Callable[[Sequence[Claim]], None],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._queue = queue
        self._observe = observe
        self._on_settled = on_settled
        self._sleep = sleep
        self._outbox: list[Entry] = []
        self._wake = asyncio.Event()
        self._settling = asyncio.Lock()
        self._deferred = False
        self._flush_now = False

    def add(
        self, claim: Claim, outcome: Outcome, seconds: float = 0.0, handler: str | None = None
    ) -> None:
        """Queue an outcome; `handler` is the handler that ran for `seconds`, if one ran."""
        self._outbox.append((Settlement(claim, outcome), seconds, handler))
        if not self._deferred or len(self._outbox) >= _BATCH:
            self._wake.set()

    @asynccontextmanager
    async def share_commit_with_claim(self) -> AsyncIterator[None]:
        """Let a claim statement share its commit with the settlements before it.

        Outcomes that are queued now go to the store together with the claim that the caller sends
        inside this context. Outcomes that are added meanwhile wait until the claim has returned, at
        most for `_DEFER_SECONDS`, so that they can share the commit of the next claim.
        """
        if self._outbox:
            self._flush_now = True
            self._wake.set()
        self._deferred = True
        timer = asyncio.get_running_loop().call_later(_DEFER_SECONDS, self._end_deferral)
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

    def has(self, claim: Claim) -> bool:
        return any(settlement.claim is claim for settlement, _, _ in self._outbox)

    async def settle_next(self) -> None:
        await self._wake.wait()
        await self._gather()
        await self._settle_gathered()

    async def _gather(self) -> None:
        """Wait while quick handlers end one after the other. A few iterations of the event loop
        cost less than a commit for each, and the next claim may share the commit."""
        size = 0
        while not self._flush_now and size < len(self._outbox) < _BATCH:
            size = len(self._outbox)
            for _ in range(_LOOP_ITERATIONS):
                await asyncio.sleep(0)

    async def flush(self, within: float) -> None:
        """Settle all queued outcomes. If the store does not respond, give up after `within`
        seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._outbox or self._settling.locked():
                    await self._settle_gathered()

    async def _settle_gathered(self) -> None:
        async with self._settling:
            self._flush_now = False
            batch, self._outbox = self._outbox[:_BATCH], self._outbox[_BATCH:]
            if not self._outbox:
                self._wake.clear()
            if batch:
                await self._settle(batch)

    async def _settle(self, batch: list[Entry]) -> None:
        settlements = [settlement for settlement, _, _ in batch]
        try:
            written = await self._queue.settle(settlements)
        except OUTAGES as error:
            await self._keep(batch, error)
        except Exception as error:  # noqa: BLE001 - a supervised loop: recorded, then it continues
            await self._isolate(batch, error)
        else:
            claims = [settlement.claim for settlement in settlements]
            self._on_settled(claims)
            seconds = [seconds for _, seconds, _ in batch]
            handlers = [handler for _, _, handler in batch]
            self._observe(Settled(claims, seconds, written, handlers))

    async def _keep(self, batch: list[Entry], error: AckboxError) -> None:
        """Queue the batch again and wait a moment: no outcome is lost while the store is away."""
        self._outbox = batch + self._outbox
        self._wake.set()
        self._observe(WorkerCallFailed("settle", str(error)))
        await self._sleep(_RETRY_SECONDS)

    async def _isolate(self, batch: list[Entry], error: Exception) -> None:
        """Settle each outcome alone, and drop an outcome that cannot be written.

        The lease of a dropped outcome expires. The event is then claimed again with its attempt
        refunded, and if this repeats, the event becomes a suspect.
        """
        if len(batch) > 1:
            for entry in batch:
                await self._settle([entry])
            return
        self._on_settled([settlement.claim for settlement, _, _ in batch])
        self._observe(WorkerCallFailed("settle", str(error)))
