"""Ends of runs on their way to the store: while one batch is being committed the next gathers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from ackbox.errors import AckboxError, Unavailable
from ackbox.model import Claim, Outcome, Settlement
from ackbox.ports import EventQueue
from ackbox.telemetry import Observer, Settled, WorkerCallFailed

_RETRY_SECONDS = 0.5
_BATCH = 500
_TURNS = 3
_PATIENCE_SECONDS = 0.05

Sleep = Callable[[float], Awaitable[None]]

Entry = tuple[Settlement, float, str | None]
"""A settlement, the seconds of its run, and the handler that ran."""


class Settler:
    """`let_go` is told of claims that are settled, or that nobody can settle."""

    def __init__(
        self,
        queue: EventQueue,
        *,
        observe: Observer,
        let_go: Callable[[Sequence[Claim]], None],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._queue = queue
        self._observe = observe
        self._let_go = let_go
        self._sleep = sleep
        self._outbox: list[Entry] = []
        self._bell = asyncio.Event()
        self._busy = asyncio.Lock()
        self._waits = False
        self._hastens = False

    def add(
        self, claim: Claim, outcome: Outcome, seconds: float = 0.0, handler: str | None = None
    ) -> None:
        """`handler` names the one that ran for so many seconds."""
        self._outbox.append((Settlement(claim, outcome), seconds, handler))
        if not self._waits or len(self._outbox) >= _BATCH:
            self._bell.set()

    @asynccontextmanager
    async def beside_a_claim(self) -> AsyncIterator[None]:
        """What has ended goes to the store together with the claim that is sent in here, what ends
        meanwhile with the next: a commit for both, not one for each."""
        if self._outbox:
            self._hastens = True
            self._bell.set()
        self._waits = True
        patience = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._wait_no_longer)
        try:
            await asyncio.sleep(0)  # `settle_next` comes first
            yield
        finally:
            patience.cancel()
            self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        self._waits = False
        if self._outbox:
            self._bell.set()

    def has(self, claim: Claim) -> bool:
        return any(settlement.claim is claim for settlement, _, _ in self._outbox)

    async def settle_next(self) -> None:
        await self._bell.wait()
        await self._gather()
        await self._settle_gathered()

    async def _gather(self) -> None:
        """While quick handlers end one after the other, a few turns of the loop cost less than a
        commit of their own; and the claim that follows them may then share it."""
        size = 0
        while not self._hastens and size < len(self._outbox) < _BATCH:
            size = len(self._outbox)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def flush(self, within: float) -> None:
        """Settle all there is; a store that does not answer is not waited for for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._outbox or self._busy.locked():
                    await self._settle_gathered()

    async def _settle_gathered(self) -> None:
        async with self._busy:
            self._hastens = False
            batch, self._outbox = self._outbox[:_BATCH], self._outbox[_BATCH:]
            if not self._outbox:
                self._bell.clear()
            if batch:
                await self._settle(batch)

    async def _settle(self, batch: list[Entry]) -> None:
        settlements = [settlement for settlement, _, _ in batch]
        try:
            written = await self._queue.settle(settlements)
        except Unavailable as error:
            await self._keep(batch, error)
        except Exception as error:  # noqa: BLE001 - a supervised loop: recorded, and it goes on
            await self._isolate(batch, error)
        else:
            claims = [settlement.claim for settlement in settlements]
            self._let_go(claims)
            seconds = [seconds for _, seconds, _ in batch]
            handlers = [handler for _, _, handler in batch]
            self._observe(Settled(claims, seconds, written, handlers))

    async def _keep(self, batch: list[Entry], error: AckboxError) -> None:
        """The store will be back: nothing that a handler did is thrown away."""
        self._outbox = batch + self._outbox
        self._bell.set()
        self._observe(WorkerCallFailed("settle", str(error)))
        await self._sleep(_RETRY_SECONDS)

    async def _isolate(self, batch: list[Entry], error: Exception) -> None:
        """Settle each outcome alone, and drop one that cannot be written. Its lease ends, and the
        event is claimed again with the attempt given back; repeated, that makes it a suspect."""
        if len(batch) > 1:
            for one in batch:
                await self._settle([one])
            return
        self._let_go([settlement.claim for settlement, _, _ in batch])
        self._observe(WorkerCallFailed("settle", str(error)))
