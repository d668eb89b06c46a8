"""Renew the leases of held claims from a thread with an event loop of its own.

A handler that blocks the main event loop therefore keeps its claim (F19). If renewal fails, runs
are stopped before their lease expires (F20).
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from ackbox.errors import AckboxError
from ackbox.model import Claim, EventId
from ackbox.ports import EventQueue
from ackbox.services import Service
from ackbox.telemetry import Observer, WorkerCallFailed
from ackbox.worker.threads import ThreadClock

TAKEN_OVER = "the lease expired, and another run took the event over"
NOT_RENEWED = "the lease could not be renewed in time"
_CLOCK = ThreadClock()


class Heartbeat:
    """The heartbeat thread. It reads `held`, and calls `lose` on the main event loop."""

    def __init__(
        self,
        queue: EventQueue,
        held: Mapping[EventId, Claim],
        *,
        lease: timedelta,
        lose: Callable[[Sequence[Claim], str], None],
        observe: Observer,
        service: Service,
        clock: ThreadClock = _CLOCK,
    ) -> None:
        self._queue = queue
        self._held = held
        self._beat_seconds = lease.total_seconds() / 3
        self._lease = lease
        self._lose = lose
        self._observe = observe
        self._service = service
        self._clock = clock
        self._main_loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._last_renewed = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="ackbox-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        """Beat until stopped. If the event loop cannot be created, for want of file descriptors,
        try again at each beat."""
        while not self._stopped.is_set():
            self._service.guard(self._beat_until_stopped)
            self._clock.wait(self._stopped, self._beat_seconds)

    def _beat_until_stopped(self) -> None:
        with asyncio.Runner() as runner:
            due = self._clock.monotonic() + self._beat_seconds
            while not self._clock.wait(self._stopped, max(due - self._clock.monotonic(), 0.0)):
                due = self._clock.monotonic() + self._beat_seconds
                self._service.guard(lambda: runner.run(self._beat()))

    async def _beat(self) -> None:
        claims = list(self._held.values())
        sent_at = self._clock.monotonic()
        if not claims:
            self._last_renewed = sent_at
            return
        try:
            async with asyncio.timeout(self._beat_seconds):
                kept = await self._queue.renew(claims, lease=self._lease)
        except (AckboxError, TimeoutError) as error:
            self._observe(WorkerCallFailed("renew", str(error) or "time-out"))
            self._give_up_if_late(claims)
        except BaseException:
            self._give_up_if_late(claims)
            raise
        else:
            self._last_renewed = sent_at
            self._report_lost([claim for claim in claims if claim.id not in kept], TAKEN_OVER)

    def _give_up_if_late(self, claims: list[Claim]) -> None:
        """Stop the runs if 60 % of the lease has passed without a renewal: the next beat may be too
        late."""
        if self._clock.monotonic() - self._last_renewed > self._lease.total_seconds() * 0.6:
            self._report_lost(claims, NOT_RENEWED)

    def _report_lost(self, lost: Sequence[Claim], reason: str) -> None:
        if lost:
            with suppress(RuntimeError):  # the main loop is closed
                self._main_loop.call_soon_threadsafe(self._lose, lost, reason)
