"""Claim, run and settle, one event after the other: what the worker does, without its concurrency.

Claims, the meaning of a run's end, and settling are the inbox's own; only the order is ours.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from ackbox.model import Caps, Claim, Done, Outcome, Release, Settlement, WorkerId
from ackbox.runtime import Runtime
from ackbox.telemetry import Claimed, Settled

_WORKER = WorkerId("test")
_LEASE = timedelta(days=1000)  # a clock that is moved far ahead must not end the claim of a step


class Stepper:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._executor = runtime.make_executor()

    async def claim(self, limit: int) -> list[Claim]:
        """What is due now, oldest first."""
        caps = Caps(share=limit, held={})
        claims = await self._runtime.queue.claim(_WORKER, limit=limit, lease=_LEASE, caps=caps)
        self._runtime.observe(Claimed(claims, [0.0] * len(claims)))
        return claims

    async def run(self, claim: Claim) -> Outcome:
        """One run of its handler; what it came to is not stored yet."""
        registration = self._runtime.registry.find(claim.source, claim.event_type)
        if registration is not None:
            return await self._executor.run(claim, registration)
        if self._runtime.settings.unhandled == "hold":
            return Release(held=True)
        return Done("ignored")

    async def finish(self, claims: Sequence[Claim]) -> None:
        """Run and settle each, in this order."""
        for claim in claims:
            started = monotonic()
            settlement = Settlement(claim, await self.run(claim))
            seconds = monotonic() - started
            written = await self._runtime.queue.settle([settlement])
            self._runtime.observe(Settled([claim], [seconds], written))
