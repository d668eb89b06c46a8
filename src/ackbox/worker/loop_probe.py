"""A thread that notices when the event loop does not answer, and names what blocks it (N6)."""

import asyncio
import sys
import threading

from ackbox.services import Service
from ackbox.telemetry import LoopBlocked, Observer

_PAUSE_SECONDS = 0.25
_BLOCKED_SECONDS = 1.0
_FRAMES_TOLD = 4


class LoopProbe:
    """Asks the event loop for an answer four times a second. A block of a second or more is
    reported while it lasts, once."""

    def __init__(self, *, observe: Observer, service: Service) -> None:
        self._observe = observe
        self._service = service
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ackbox-loop-probe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_SECONDS):
            self._service.guard(self._probe)

    def _probe(self) -> None:
        answered = threading.Event()
        try:
            self._main.call_soon_threadsafe(answered.set)
        except RuntimeError:  # the main loop is closed
            self._stopped.set()
            return
        if answered.wait(_BLOCKED_SECONDS) or self._stopped.is_set():
            return
        self._observe(LoopBlocked(_where(self._main_thread)))
        while not answered.wait(_BLOCKED_SECONDS) and not self._stopped.is_set():
            pass  # the same block: it is reported once


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
