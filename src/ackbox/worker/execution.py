"""One run of one handler, and what its end means: a value; nothing is stored here."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ackbox import handlers
from ackbox.handlers import Event, Logger, Registration, Tx
from ackbox.model import Again, Buried, Claim, Done, Failure, Outcome, make_failure
from ackbox.quantities import show_duration
from ackbox.worker.threads import HandlerThread, Raised

Backoff = Callable[[int], timedelta]
"""The delay after so many attempts, by policy."""


_STUBBORN_SECONDS = 5.0


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
        self.abandoned = 0

    async def run(self, claim: Claim, registration: Registration) -> Outcome:
        """Raises only when it is cancelled: then the claim was lost, or we are shutting down."""
        limit = registration.max_attempts or self._max_attempts
        if claim.attempts > limit:
            return Buried(Failure("every attempt ended with the process", "crashed"))
        tx = Tx()
        try:
            await self._call(claim, registration, tx)
        except Raised as carried:
            return self._failed(claim, limit, carried.error)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return self._failed(claim, limit, error)  # it was its own
        except BaseException as error:  # noqa: BLE001 - around a handler: whatever it raised is its end
            return self._failed(claim, limit, error)
        otherwise = self._again(claim, limit, Failure("", "tx"), None) if tx.statements else None
        return Done("handled", tuple(tx.statements), otherwise)

    def _failed(self, claim: Claim, limit: int, error: BaseException) -> Outcome:
        match error:
            case handlers.Dead():
                return Buried(describe_failure(error))
            case handlers.Retry():
                return self._again(claim, limit, describe_failure(error), error.after)
            case _:
                return self._again(claim, limit, describe_failure(error), None)

    async def _call(self, claim: Claim, registration: Registration, tx: Tx) -> None:
        arguments: dict[str, Any] = {"event": as_event(claim, LaterBound(self._logger, claim))}
        if registration.wants_tx:
            arguments["tx"] = tx
        allowed = registration.timeout or self._timeout
        deadline = asyncio.timeout(allowed.total_seconds())
        try:
            async with deadline:
                if registration.is_async:
                    await registration.handler(**arguments)  # type: ignore[misc]
                else:
                    await self._in_thread(lambda: registration.handler(**arguments))
        except TimeoutError:
            if not deadline.expired():
                raise  # one of the handler's own
        if deadline.expired():  # also when it caught its cancellation, and returned late
            raise Overdue(f"it took longer than {show_duration(allowed)}")

    def fail(self, claim: Claim, registration: Registration, error: BaseException) -> Outcome:
        """What a run comes to that ended so."""
        return self._failed(claim, registration.max_attempts or self._max_attempts, error)

    def is_stubborn(self, registration: Registration, seconds: float) -> bool:
        """It has run for so long that it must have been cancelled, and goes on."""
        allowed = registration.timeout or self._timeout
        return registration.is_async and seconds > allowed.total_seconds() + _STUBBORN_SECONDS

    def abandon_task(
        self, task: "asyncio.Task[None]", claim: Claim, registration: Registration
    ) -> Outcome:
        """What its run comes to, whatever it still does."""
        self.abandoned += 1
        task.add_done_callback(self._came_back)
        self._note_abandoned(self.abandoned)
        allowed = show_duration(registration.timeout or self._timeout)
        late = Overdue(f"it took longer than {allowed}, and did not end when it was cancelled")
        return self.fail(claim, registration, late)

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


def _is_cancelled() -> bool:
    """Whether somebody cancels this run, or the handler only raised what looks like it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class LaterBound:
    """The logger of one event, made when the handler first wants it: most never do."""

    __slots__ = ("_claim", "_logger")

    def __init__(self, logger: Callable[[Claim], Logger], claim: Claim) -> None:
        self._logger = logger
        self._claim = claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger(self._claim), name)


def as_event(claim: Claim, logger: Logger) -> Event:
    return Event(
        id=claim.id,
        source=claim.source,
        idempotency_key=claim.idempotency_key,
        event_type=claim.event_type,
        body=claim.payload,
        headers=msgspec.json.decode(claim.headers, type=dict[str, str]) if claim.headers else {},
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
            return make_failure(text or name, name)
        case Overdue():
            return make_failure(text, "timeout")
        case _:
            return make_failure(f"{name}: {text}" if text else name, name)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - around a handler's: its `__str__` may fail too
        return f"(its text cannot be had: {type(second).__name__})"
