"""Supervise every background loop of the process (F56).

A service is a background loop with a name. Its owner supplies one step; the supervisor calls the
step again and again. If a step raises, the supervisor records the failure and calls the step again
after a delay that grows. No service ends silently.
"""

import asyncio
import random
import threading
import traceback
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import PurePath
from time import monotonic

from msgspec import Struct

from ackbox.errors import AckboxError
from ackbox.model import Clock
from ackbox.retry import Uniform
from ackbox.telemetry import (
    Observer,
    ServiceFailed,
    ServiceRecovered,
    ServiceStarted,
    combine_observers,
)

Step = Callable[[], Awaitable[object]]
Sleep = Callable[[float], Awaitable[None]]

LONGEST_DELAY = 5.0
_FIRST_DELAY = 0.1
_STEADY_SECONDS = 10.0
"""A restarted step counts as recovered after this many seconds without a failure. Waiting until it
returns is no test: a step may wait for work for hours."""
_CRITICAL_SECONDS = 60.0


class ServiceStatus(Struct, frozen=True):
    """The state of a service, for operators. `since` is the time of its start, of its recovery, or
    of the first of the current consecutive failures."""

    name: str
    state: str
    failures: int
    error: str | None
    since: datetime


class Service:
    """The state of one background loop. Any thread may report failures and successes."""

    def __init__(
        self,
        name: str,
        observe: Observer,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        steady_after: float,
        critical_after: float,
    ) -> None:
        self.name = name
        self.failures = 0
        self._observe = observe
        self._clock = clock
        self._monotonic = monotonic
        self._steady_after = steady_after
        self._critical_after = critical_after
        self._lock = threading.Lock()
        self._error: str | None = None
        self._since = clock()
        self._first_failed = self._last_failed = 0.0
        self._steady: asyncio.TimerHandle | None = None
        observe(ServiceStarted(name))

    @property
    def status(self) -> ServiceStatus:
        state = "failing" if self.failures else "running"
        return ServiceStatus(self.name, state, self.failures, self._error, self._since)

    @property
    def is_critical(self) -> bool:
        """Whether the loop has kept failing for `critical_after` seconds."""
        return bool(self.failures) and (
            self._last_failed - self._first_failed >= self._critical_after
        )

    def failed(self, error: BaseException) -> int:
        """Record a failure; return how many failures there were in a row."""
        with self._lock:
            self._last_failed = self._monotonic()
            if not self.failures:
                self._first_failed, self._since = self._last_failed, self._clock()
            self.failures += 1
            self._error = summarize(error)
            fact = ServiceFailed(self.name, self.failures, self._error)
            if self._steady is not None:
                self._steady.cancel()
        self._observe(fact)
        return fact.failures

    def guard(self, call: Callable[[], object]) -> None:
        """Call a function of a timer or thread, and record its error instead of raising it."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the supervisor of background loops
            self.failed(error)
        else:
            self.succeeded()

    def expect_steady(self) -> None:
        """Count the restarted loop as recovered unless it fails again soon. Call this method on the
        event loop."""
        loop = asyncio.get_running_loop()
        self._steady = loop.call_later(self._steady_after, self.succeeded)

    def succeeded(self) -> None:
        """Record a success. This costs nothing unless the loop had failed."""
        if not self.failures:
            return
        with self._lock:
            failures, self.failures = self.failures, 0
            self._since = self._clock()
        if failures:
            self._observe(ServiceRecovered(self.name, failures))


class Services:
    """The supervisor. The last error of a service stays visible after its recovery."""

    def __init__(
        self,
        observe: Observer,
        *,
        clock: Clock,
        uniform: Uniform = random.uniform,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = monotonic,
        steady_after: float = _STEADY_SECONDS,
        critical_after: float = _CRITICAL_SECONDS,
    ) -> None:
        self._observe = combine_observers(observe)  # a failing observer must not end the supervisor
        self._clock = clock
        self._uniform = uniform
        self._sleep = sleep
        self._monotonic = monotonic
        self._steady_after = steady_after
        self._critical_after = critical_after
        self._services: dict[str, Service] = {}

    def add(self, name: str) -> Service:
        """Add a service whose owner reports to it: a timer or a thread."""
        service = Service(
            name,
            self._observe,
            clock=self._clock,
            monotonic=self._monotonic,
            steady_after=self._steady_after,
            critical_after=self._critical_after,
        )
        self._services[name] = service
        return service

    def run(
        self,
        name: str,
        step: Step,
        *,
        pause: float = 0.0,
        stopping: asyncio.Event | None = None,
        longest_delay: float = LONGEST_DELAY,
    ) -> asyncio.Task[None]:
        """Repeat the step, with a pause of `pause` seconds between, until the task is cancelled or
        `stopping` is set. A step that fails is repeated after at most `longest_delay` seconds."""

        async def step_and_pause() -> None:
            await step()
            service.succeeded()
            await self._sleep(pause)

        service = self.add(name)
        repeated = self._repeat(service, step_and_pause if pause else step, stopping, longest_delay)
        return asyncio.create_task(repeated, name=f"ackbox {name}")

    @property
    def statuses(self) -> list[ServiceStatus]:
        return [service.status for service in list(self._services.values())]

    @property
    def is_critical(self) -> bool:
        return any(service.is_critical for service in list(self._services.values()))

    async def _repeat(
        self, service: Service, step: Step, stopping: asyncio.Event | None, longest: float
    ) -> None:
        while stopping is None or not stopping.is_set():
            try:
                await step()
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancelled():
                    raise
                delay = self._delay(service.failed(error), longest)
                await _sleep_until_stopping(stopping, self._sleep(delay))
                service.expect_steady()
            else:
                service.succeeded()

    def _delay(self, failures: int, longest: float) -> float:
        full = min(_FIRST_DELAY * 2.0 ** min(failures - 1, 32), longest)
        return self._uniform(full / 2, full)


def summarize(error: BaseException) -> str:
    """Name an error without its text: the text of a driver's error quotes values of senders."""
    if isinstance(error, AckboxError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    name = type(error).__name__
    if not frames:
        return name
    frame = frames[-1]
    return f"{name} in {frame.name} ({PurePath(frame.filename).name}:{frame.lineno})"


def _is_cancelled() -> bool:
    """Return whether this task itself is cancelled, not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _sleep_until_stopping(stopping: asyncio.Event | None, sleeping: Awaitable[None]) -> None:
    """Sleep, or return early when `stopping` is set."""
    if stopping is None:
        await sleeping
        return
    tasks = [asyncio.ensure_future(sleeping), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
