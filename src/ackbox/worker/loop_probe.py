"""A thread that notices when the event loop is blocked, and names the blocking call (N6)."""

import asyncio
import sys
import threading

from ackbox.services import Service
from ackbox.telemetry import LoopBlocked, Observer
from ackbox.worker.threads import ThreadClock

_CLOCK = ThreadClock()
_PAUSE_SECONDS = 0.25
_BLOCKED_SECONDS = 1.0
_FRAMES_NAMED = 4


class LoopProbe:
    """Schedules a callback on the event loop four times a second. If the callback does not run
    within a second, the block is reported while it lasts, once."""

    def __init__(self, *, observe: Observer, service: Service, clock: ThreadClock = _CLOCK) -> None:
        self._observe = observe
        self._service = service
        self._clock = clock
        self._main_loop = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ackbox-loop-probe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._clock.wait(self._stopped, _PAUSE_SECONDS):
            self._service.guard(self._probe)

    def _probe(self) -> None:
        responded = threading.Event()
        try:
            self._main_loop.call_soon_threadsafe(responded.set)
        except RuntimeError:  # the main loop is closed
            self._stopped.set()
            return
        if self._clock.wait(responded, _BLOCKED_SECONDS) or self._stopped.is_set():
            return
        self._observe(LoopBlocked(_innermost_calls(self._main_thread)))
        while not self._clock.wait(responded, _BLOCKED_SECONDS) and not self._stopped.is_set():
            pass  # the same block lasts: it was reported


def _innermost_calls(thread: int) -> str:
    """Name the innermost calls of a thread, as `grant_access (app.py:12)`."""
    frame = sys._current_frames().get(thread)
    calls = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        calls.append(f"{name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return " <- ".join(calls[:_FRAMES_NAMED])
