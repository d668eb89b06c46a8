"""Leases are renewed from a thread with an event loop of its own, so that a handler that blocks the
main one keeps its claim (F19). If renewal fails, runs are stopped before their lease ends (F20)."""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from ackbox.model import Claim, EventId
from ackbox.ports import EventQueue
from ackbox.telemetry import LoopBlocked, Observer, WorkerTrouble

_PROBE_SECONDS = 1.0
_FRAMES_TOLD = 4


class Heartbeat:
    """`held` is read from this thread; `lose` is called on the main loop."""

    def __init__(
        self,
        queue: EventQueue,
        held: Mapping[EventId, Claim],
        *,
        lease: timedelta,
        lose: Callable[[Sequence[Claim]], None],
        observe: Observer,
    ) -> None:
        self._queue = queue
        self._held = held
        self._beat_seconds = lease.total_seconds() / 3
        self._lease = lease
        self._lose = lose
        self._observe = observe
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._last_renewed = monotonic()
        self._thread = threading.Thread(target=self._run, name="ackbox-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            due = monotonic() + self._beat_seconds
            while not self._stopped.wait(max(due - monotonic(), 0.0)):
                due = monotonic() + self._beat_seconds
                try:
                    runner.run(self._beat())
                    self._probe_main_loop()
                except Exception as error:  # noqa: BLE001 - a supervised loop: recorded, it goes on
                    self._observe(WorkerTrouble("renew", str(error) or type(error).__name__))

    async def _beat(self) -> None:
        claims = list(self._held.values())
        asked = monotonic()
        if not claims:
            self._last_renewed = asked
            return
        try:
            async with asyncio.timeout(self._beat_seconds):
                kept = await self._queue.renew(claims, lease=self._lease)
        except Exception as error:  # noqa: BLE001 - a supervised loop: recorded, and it goes on
            self._observe(WorkerTrouble("renew", str(error) or "time-out"))
            self._give_up_if_late(claims)
        else:
            self._last_renewed = asked
            self._tell([claim for claim in claims if claim.id not in kept])

    def _give_up_if_late(self, claims: list[Claim]) -> None:
        """Two thirds of the lease have passed without a renewal: before it ends, stop the runs."""
        if monotonic() - self._last_renewed > self._lease.total_seconds() * 0.6:
            self._tell(claims)

    def _tell(self, lost: Sequence[Claim]) -> None:
        if lost:
            with suppress(RuntimeError):  # the main loop is closed
                self._main.call_soon_threadsafe(self._lose, lost)

    def _probe_main_loop(self) -> None:
        """A handler that blocks the event loop stops everybody: name it."""
        answered = threading.Event()
        try:
            self._main.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return  # the main loop is closed
        seconds = min(_PROBE_SECONDS, self._beat_seconds)
        if not answered.wait(seconds) and not self._stopped.is_set():
            self._observe(LoopBlocked(_where(self._main_thread)))


def _where(thread: int) -> str:
    """The innermost calls of that thread, as `grant_access (app.py:12)`."""
    frame = sys._current_frames().get(thread)
    places = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        places.append(f"{name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return " <- ".join(places[:_FRAMES_TOLD])
