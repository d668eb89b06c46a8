"""One run of one handler, and what its end means: a value; nothing is stored here."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from ackbox import handlers
from ackbox.handlers import Event, Logger, Registration, Tx
from ackbox.model import Again, Buried, Claim, Done, Failure, Outcome, make_failure
from ackbox.quantities import show_duration
from ackbox.worker.deadlines import Deadlines
from ackbox.worker.places import where_of
from ackbox.worker.threads import HandlerThread, Raised

Backoff = Callable[[int], timedelta]
"""The delay after so many attempts, by policy."""

_STUBBORN_SECONDS = 5.0
_HANDLED = Done("handled")
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class Overdue(Exception):
    """The handler took longer than it may."""


class Executor:
    """Runs handlers; `abandoned` counts the threads that were given up on and still run."""

    def __init__(
        self,
        *,
        backoff: Backoff,
        max_attempts: int,
        timeout: timedelta,
        logger: Callable[[Claim], Logger],
        note_abandoned: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._backoff = backoff
        self._max_attempts = max_attempts
        self._timeout = timeout
        self._logger = logger
        self._note_abandoned = note_abandoned
        self._deadlines = Deadlines(self._cancel)
        self._late: dict[asyncio.Task[Any], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.abandoned = 0

    async def run(self, claim: Claim, registration: Registration) -> Outcome:
        """Raises only when it is cancelled: then the claim was lost, or we are shutting down."""
        limit = registration.max_attempts or self._max_attempts
        if claim.attempts > limit:
            return Buried(Failure("every attempt ended with the process", "crashed"))
        tx = Tx() if registration.wants_tx else None
        allowed = registration.timeout or self._timeout
        task = self._current_task()
        cancelled_before = task.cancelling()
        self._deadlines.start(task, allowed)
        try:
            await self._call(claim, registration, tx)
        except BaseException as error:  # around a handler: whatever it raised is its end
            in_time = self._end(task, allowed)
            if _is_cancelled(task, error, cancelled_before if not in_time else 0):
                raise
            return self._failed(claim, limit, _cause(error, None if in_time else allowed))
        if not self._end(task, allowed):  # it caught its cancellation, and returned late
            return self._failed(claim, limit, _overdue(allowed))
        return _HANDLED if tx is None else self._done(claim, limit, tx)

    def fail(self, claim: Claim, registration: Registration, error: BaseException) -> Outcome:
        """What a run comes to that ended so."""
        return self._failed(claim, registration.max_attempts or self._max_attempts, error)

    def stubborn(self) -> list[asyncio.Task[Any]]:
        """Runs that were cancelled a while ago because their time was over, and go on."""
        since = monotonic() - _STUBBORN_SECONDS
        return [task for task, cancelled in self._late.items() if cancelled < since]

    def abandon_task(
        self, task: asyncio.Task[Any], claim: Claim, registration: Registration
    ) -> Outcome:
        """What its run comes to, whatever it still does."""
        self.abandoned += 1
        self._late.pop(task, None)
        task.add_done_callback(self._came_back)
        self._note_abandoned(self.abandoned)
        allowed = show_duration(registration.timeout or self._timeout)
        late = Overdue(f"it took longer than {allowed}, and did not end when it was cancelled")
        return self.fail(claim, registration, late)

    def close(self) -> None:
        """No run is cancelled for its time any more."""
        self._deadlines.close()

    def _current_task(self) -> asyncio.Task[Any]:
        """The loop is remembered: to look for it is a system call in 3.11."""
        task = asyncio.current_task(self._loop) if self._loop is not None else None
        if task is None:
            self._loop = asyncio.get_running_loop()
            task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("a handler runs in a task")
        return task

    def _call(self, claim: Claim, registration: Registration, tx: Tx | None) -> Awaitable[None]:
        """Not a coroutine itself: one less for each run."""
        event = as_event(claim, LaterBound(self._logger, claim))
        handler = registration.handler if tx is None else partial(registration.handler, tx=tx)
        if registration.is_async:
            return handler(event=event)  # type: ignore[return-value]
        return self._in_thread(partial(handler, event=event))

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._late[task] = monotonic()
        task.cancel()

    def _end(self, task: asyncio.Task[Any], allowed: timedelta) -> bool:
        """Whether it was in time; else what was done to its task for that is taken back."""
        if self._deadlines.end(task, allowed):
            return True
        self._late.pop(task, None)
        task.uncancel()
        return False

    def _done(self, claim: Claim, limit: int, tx: Tx) -> Done:
        if not tx.statements:
            return _HANDLED
        otherwise = self._again(claim, limit, Failure("", "tx"), None)
        return Done("handled", tuple(tx.statements), otherwise)

    def _failed(self, claim: Claim, limit: int, error: BaseException) -> Outcome:
        match error:
            case handlers.Dead():
                return Buried(describe_failure(error))
            case handlers.Retry():
                return self._again(claim, limit, describe_failure(error), error.after)
            case _:
                return self._again(claim, limit, describe_failure(error), None)

    async def _in_thread(self, call: Callable[[], Any]) -> None:
        """A thread cannot be cancelled. Past its time it is abandoned: its result goes nowhere."""
        thread = HandlerThread(call, asyncio.get_running_loop())
        try:
            returned = await asyncio.shield(thread.finished)
        except asyncio.CancelledError:
            if not thread.finished.done():
                self._abandon(thread)
            raise
        if inspect.iscoroutine(returned):
            returned.close()
            raise TypeError("the handler returned a coroutine: write it as `async def`")

    def _abandon(self, thread: HandlerThread) -> None:
        self.abandoned += 1
        thread.finished.add_done_callback(self._came_back)
        self._note_abandoned(self.abandoned)

    def _came_back(self, finished: "asyncio.Future[Any]") -> None:
        self.abandoned -= 1
        if not finished.cancelled():
            finished.exception()

    def _again(
        self, claim: Claim, limit: int, failure: Failure, after: timedelta | None
    ) -> Again | Buried:
        if claim.attempts >= limit:
            return Buried(failure)
        return Again(failure, self._backoff(claim.attempts) if after is None else after)


def _is_cancelled(task: asyncio.Task[Any], error: BaseException, before: int) -> bool:
    """Whether somebody cancels this run, or the handler only raised what looks like it."""
    return isinstance(error, asyncio.CancelledError) and task.cancelling() > before


def _cause(error: BaseException, exceeded: timedelta | None) -> BaseException:
    if isinstance(error, Raised):
        return error.error
    if exceeded is not None and isinstance(error, asyncio.CancelledError | TimeoutError):
        return _overdue(exceeded)
    return error  # one of the handler's own


def _overdue(allowed: timedelta) -> Overdue:
    return Overdue(f"it took longer than {show_duration(allowed)}")


class LaterBound(Struct, frozen=True):
    """The logger of one event, made when the handler first wants it: most never do."""

    _logger: Callable[[Claim], Logger]
    _claim: Claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger(self._claim), name)


def as_event(claim: Claim, logger: Logger) -> Event:
    return Event(
        id=claim.id,
        source=claim.source,
        idempotency_key=claim.idempotency_key,
        event_type=claim.event_type,
        body=claim.payload,
        headers=_decode_headers(claim.headers) if claim.headers else {},
        attempts=claim.attempts,
        run=claim.run,
        lane=claim.lane,
        source_sequence=claim.source_sequence,
        source_emitted_at=claim.source_emitted_at,
        created_at=claim.created_at,
        logger=logger,
    )


def describe_failure(error: BaseException) -> Failure:
    name = type(error).__name__
    text = _text_of(error)
    match error:
        case handlers.Dead() | handlers.Retry():
            return make_failure(text or name, name, where_of(error))
        case Overdue():
            return make_failure(text, "timeout")
        case _:
            return make_failure(f"{name}: {text}" if text else name, name, where_of(error))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - around a handler's: its `__str__` may fail too
        return f"(its text cannot be had: {type(second).__name__})"
