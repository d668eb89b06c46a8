"""Run a handler once and return the outcome as a value. Nothing is stored here."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from ackbox import handlers
from ackbox.handlers import Event, Logger, Registration, Tx
from ackbox.model import (
    Claim,
    Clock,
    DeadLetter,
    Done,
    Failure,
    Outcome,
    RetryLater,
    Snoozed,
)
from ackbox.quantities import show_duration
from ackbox.telemetry import RUNNING, Observer, ignore_facts
from ackbox.worker.abandoned_runs import AbandonedRuns
from ackbox.worker.deadlines import Deadlines, Guard, Timers, call_directly
from ackbox.worker.failures import UNREADABLE, Abandoned, Overdue, Raised, describe_failure
from ackbox.worker.suspects import is_spent
from ackbox.worker.threads import HandlerThread
from ackbox.worker.tracebacks import (
    Stack,
    stack_of_coroutine,
    stack_of_thread,
)

Backoff = Callable[[int], timedelta]
"""Return the delay before the next attempt, given the number of attempts so far."""

_UNRESPONSIVE_SECONDS = 5.0
_SHORTEST_SNOOZE = timedelta(seconds=1)
_TIMERS = Timers()
_HANDLED = Done("handled")
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class RunPolicy(Struct, frozen=True):
    """The limits of a run, from the settings; a handler may have limits of its own."""

    backoff: Backoff
    max_attempts: int
    timeout: timedelta
    snooze_max_age: timedelta


class Executor:
    """Runs handlers. `abandoned` counts the abandoned runs whose handlers have not ended."""

    def __init__(
        self,
        *,
        policy: RunPolicy,
        clock: Clock,
        logger: Callable[[Claim], Logger],
        observe: Observer = ignore_facts,
        guard: Guard = call_directly,
        note_error: Callable[[BaseException], None] = lambda error: None,
        timers: Timers = _TIMERS,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._logger = logger
        self._guard = guard
        self._note_error = note_error
        self._timers = timers
        self._deadlines = Deadlines(self._cancel, guard=guard, timers=timers)
        self._late: dict[asyncio.Task[Any], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned = AbandonedRuns(observe)

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    async def run(self, claim: Claim, registration: Registration) -> Outcome:
        """Run the handler and return the outcome.

        This method raises only CancelledError: the claim was lost, or the worker is stopping.
        """
        limit = self.attempts_of(registration)
        if claim.unsettled and is_spent(claim, limit):
            return DeadLetter(
                Failure("the last runs ended with the process; no attempt is left", "crashed")
            )
        RUNNING.set(claim)  # in the context of this run's own task
        tx = Tx(claim.id) if registration.takes_tx else None
        allowed = registration.timeout or self._policy.timeout
        task = (asyncio.current_task(self._loop) if self._loop else None) or self._find_task()
        cancelled_before = task.cancelling()
        self._deadlines.start(task, allowed)
        try:
            await self._call(claim, registration, tx)
        except BaseException as error:  # around a handler: any exception ends its run
            in_time = self._deadlines.end(task, allowed) or self._undo_cancellation(task)
            if _is_cancelled(task, error, cancelled_before if not in_time else 0):
                raise
            cause = _cause(error, None if in_time else allowed)
            return self._outcome_of_failure(claim, limit, cause)
        finally:
            if tx is not None:
                tx.close()
        if not self._deadlines.end(task, allowed):  # the handler caught its cancellation
            self._undo_cancellation(task)
            return self._outcome_of_failure(claim, limit, _overdue(allowed))
        return _HANDLED if tx is None else self._done(claim, limit, tx)

    def fail(self, claim: Claim, registration: Registration, error: BaseException) -> Outcome:
        """Return the outcome of a run that ended with this error."""
        return self._outcome_of_failure(claim, self.attempts_of(registration), error)

    def attempts_of(self, registration: Registration) -> int:
        """Return how many attempts an event of this handler has."""
        return registration.max_attempts or self._policy.max_attempts

    def unresponsive(self) -> list[asyncio.Task[Any]]:
        """Return the overdue runs that were cancelled a while ago and have not ended."""
        since = self._timers.monotonic() - _UNRESPONSIVE_SECONDS
        return [task for task, cancelled in self._late.items() if cancelled < since]

    def abandon_task(
        self, task: asyncio.Task[Any], claim: Claim, registration: Registration
    ) -> Outcome:
        """Abandon a run that ignores its cancellation, and return its outcome."""
        stack = stack_of_coroutine(task.get_coro())
        self._late.pop(task, None)
        self._abandoned.add(task, claim, registration, stack)
        allowed = show_duration(registration.timeout or self._policy.timeout)
        message = f"it took longer than {allowed}, and did not end when it was cancelled"
        return self.fail(claim, registration, Overdue(message, stack))

    def close(self) -> None:
        """Cancel the timers: from now on no run times out."""
        self._deadlines.close()

    def _find_task(self) -> asyncio.Task[Any]:
        """Return the current task, and remember its loop: to look it up is a system call in
        3.11."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("a handler runs in a task")
        return task

    def _call(self, claim: Claim, registration: Registration, tx: Tx | None) -> Awaitable[None]:
        """Call the handler. This is no coroutine function, which saves a coroutine for each run."""
        event = as_event(claim, LazyLogger(self._logger, claim))
        handler = registration.handler if tx is None else partial(registration.handler, tx=tx)
        if registration.is_async:
            return handler(event=event)  # type: ignore[return-value]
        return self._run_in_thread(partial(handler, event=event), claim, registration)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._late[task] = self._timers.monotonic()
        task.cancel()

    def _undo_cancellation(self, task: asyncio.Task[Any]) -> bool:
        """Undo the cancellation of a task whose run is overdue, and return False."""
        self._late.pop(task, None)
        task.uncancel()
        return False

    def _done(self, claim: Claim, limit: int, tx: Tx) -> Done:
        if not tx.statements and not tx.sent:
            return _HANDLED
        on_effect_failure = self._retry_or_dead_letter(claim, limit, Failure("", "tx"), None)
        return Done("handled", tuple(tx.statements), on_effect_failure, tuple(tx.sent))

    def _outcome_of_failure(self, claim: Claim, limit: int, error: BaseException) -> Outcome:
        """Return an outcome even if the error raises while it is examined: a run that is not
        settled would keep its claim for ever."""
        self._note_error(error)
        try:
            return self._classify(claim, limit, error)
        except BaseException:  # noqa: BLE001 - around a handler: its error may raise errors of its own
            return self._retry_or_dead_letter(claim, limit, UNREADABLE, None)

    def _classify(self, claim: Claim, limit: int, error: BaseException) -> Outcome:
        match error:
            case handlers.Dead():
                return DeadLetter(describe_failure(error))
            case handlers.Retry():
                return self._retry_or_dead_letter(
                    claim, limit, describe_failure(error), error.after
                )
            case handlers.Snooze():
                return self._snooze(claim, limit, error)
            case _:
                return self._retry_or_dead_letter(claim, limit, describe_failure(error), None)

    def _snooze(self, claim: Claim, limit: int, error: handlers.Snooze) -> Outcome:
        """Refund the attempt, unless the event is older than `snooze_max_age`: then a snooze is a
        retry, so that the event ends at some time. A delay is cut to end at that age, because a
        snoozed event blocks its lane."""
        failure = describe_failure(error)
        age = self._clock() - (claim.replayed_at or claim.created_at)
        if age >= self._policy.snooze_max_age:
            return self._retry_or_dead_letter(claim, limit, failure, error.after)
        delay = min(error.after, self._policy.snooze_max_age - age)
        return Snoozed(max(delay, _SHORTEST_SNOOZE), failure.error)

    async def _run_in_thread(
        self, call: Callable[[], Any], claim: Claim, registration: Registration
    ) -> None:
        """Run a plain handler in a thread, which cannot be cancelled.

        Past its time-out, the thread is abandoned and its result is ignored. If only the claim was
        lost, the thread may still end in time. It counts as abandoned only if it exceeds its
        time-out."""
        started = self._timers.monotonic()
        thread = HandlerThread(call, asyncio.get_running_loop())
        try:
            ended = await asyncio.shield(thread.ended)
        except asyncio.CancelledError:
            if thread.ended.done():
                raise
            if self._find_task() not in self._late:
                self._abandon_when_late(thread, claim, registration, started)
                raise
            raise Abandoned(self._abandon_thread(thread, claim, registration)) from None
        if ended.error is not None:
            raise Raised(ended.error)
        if inspect.iscoroutine(ended.returned):
            ended.returned.close()
            raise TypeError("the handler returned a coroutine: write it as `async def`")

    def _abandon_when_late(
        self, thread: HandlerThread, claim: Claim, registration: Registration, started: float
    ) -> None:
        """Abandon the thread of a lost claim if it has not ended at its time-out."""

        def abandon_if_running() -> None:
            if not thread.ended.done():
                self._guard(lambda: self._abandon_thread(thread, claim, registration))

        allowed = (registration.timeout or self._policy.timeout).total_seconds()
        remaining = max(started + allowed - self._timers.monotonic(), 0.0)
        timer = self._timers.call_later(remaining, abandon_if_running)
        thread.ended.add_done_callback(lambda _: timer.cancel())

    def _abandon_thread(
        self, thread: HandlerThread, claim: Claim, registration: Registration
    ) -> Stack:
        stack = stack_of_thread(thread.ident)
        self._abandoned.add(thread.ended, claim, registration, stack)
        return stack

    def _retry_or_dead_letter(
        self, claim: Claim, limit: int, failure: Failure, after: timedelta | None
    ) -> RetryLater | DeadLetter:
        if claim.attempts >= limit:
            return DeadLetter(failure)
        delay = self._policy.backoff(claim.attempts) if after is None else after
        return RetryLater(failure, delay)


def _is_cancelled(task: asyncio.Task[Any], error: BaseException, before: int) -> bool:
    """Return whether this run was cancelled; the handler may also raise CancelledError itself."""
    return issubclass(type(error), asyncio.CancelledError) and task.cancelling() > before


def _cause(error: BaseException, exceeded: timedelta | None) -> BaseException:
    if type(error) is Raised:  # `isinstance` would call the error's own `__class__`
        return error.error
    if exceeded is not None and issubclass(type(error), asyncio.CancelledError | TimeoutError):
        return _overdue(exceeded, error)
    return error  # raised by the handler itself


def _overdue(allowed: timedelta, error: BaseException | None = None) -> Overdue:
    """Return a time-out with the traceback of the cancellation, which shows where the handler
    was."""
    stack = error.stack if isinstance(error, Abandoned) else None
    late = Overdue(f"it took longer than {show_duration(allowed)}", stack)
    return late if error is None else late.with_traceback(error.__traceback__)


class LazyLogger(Struct, frozen=True):
    """The logger of one event, made at its first use: most handlers never use it."""

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
