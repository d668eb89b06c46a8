"""Leases are renewed from a thread with an event loop of its own, so that a handler that blocks the
main one keeps its claim (F19). If renewal fails, runs are stopped before their lease ends (F20)."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from ackbox.errors import AckboxError
from ackbox.model import Claim, EventId
from ackbox.ports import EventQueue
from ackbox.services import Service
from ackbox.telemetry import Observer, WorkerCallFailed

TAKEN_OVER = "the lease ended, and another run took the event over"
NOT_RENEWED = "the store could not be reached before the lease ended"


class Heartbeat:
    """`held` is read from this thread; `lose` is called on the main loop."""

    def __init__(
        self,
        queue: EventQueue,
        held: Mapping[EventId, Claim],
        *,
        lease: timedelta,
        lose: Callable[[Sequence[Claim], str], None],
        observe: Observer,
        service: Service,
    ) -> None:
        self._queue = queue
        self._held = held
        self._beat_seconds = lease.total_seconds() / 3
        self._lease = lease
        self._lose = lose
        self._observe = observe
        self._service = service
        self._main = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._last_renewed = monotonic()
        self._thread = threading.Thread(target=self._run, name="ackbox-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        """Without file descriptors there is no event loop: then it is tried again at each beat."""
        while not self._stopped.is_set():
            self._service.guard(self._beat_until_stopped)
            self._stopped.wait(self._beat_seconds)

    def _beat_until_stopped(self) -> None:
        with asyncio.Runner() as runner:
            due = monotonic() + self._beat_seconds
            while not self._stopped.wait(max(due - monotonic(), 0.0)):
                due = monotonic() + self._beat_seconds
                self._service.guard(lambda: runner.run(self._beat()))
            runner.run(self._queue.end_renewals())

    async def _beat(self) -> None:
        claims = list(self._held.values())
        asked = monotonic()
        if not claims:
            self._last_renewed = asked
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
            self._last_renewed = asked
            self._tell([claim for claim in claims if claim.id not in kept], TAKEN_OVER)

    def _give_up_if_late(self, claims: list[Claim]) -> None:
        """Stop the runs if 60 % of the lease have passed without a renewal: the next beat may come
        too late."""
        if monotonic() - self._last_renewed > self._lease.total_seconds() * 0.6:
            self._tell(claims, NOT_RENEWED)

    def _tell(self, lost: Sequence[Claim], reason: str) -> None:
        if lost:
            with suppress(RuntimeError):  # the main loop is closed
                self._main.call_soon_threadsafe(self._lose, lost, reason)
