"""Failures of runs: the exceptions that stand for them, and the value that is stored."""

import asyncio

from ackbox.handlers import Dead, Retry, Snooze
from ackbox.model import Failure, make_failure
from ackbox.worker.tracebacks import (
    Stack,
    format_error,
    format_stack,
    innermost_of,
    text_of,
    where_of,
)

UNREADABLE = Failure("the handler raised an error that cannot be read", "unreadable_error")


class Raised(Exception):
    """Carries the exception of a thread, because a coroutine cannot raise StopIteration."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Abandoned(asyncio.CancelledError):
    """The run was cancelled while its thread continues; `stack` is where the thread was."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack


class Overdue(Exception):
    """The handler exceeded its time-out; `stack` is where it was, if it still runs."""

    def __init__(self, text: str, stack: Stack | None = None) -> None:
        super().__init__(text)
        self.stack = stack or []


def describe_failure(error: BaseException) -> Failure:
    name, text = type(error).__name__, text_of(error)
    match error:
        case Dead() | Retry() | Snooze():
            return make_failure(text or name, name, where_of(error), _traceback_of_cause(error))
        case Overdue() if error.stack:
            return make_failure(
                text, "timeout", innermost_of(error.stack), format_stack(error.stack)
            )
        case Overdue():
            return make_failure(text, "timeout", where_of(error), format_error(error))
        case _:
            message = f"{name}: {text}" if text else name
            return make_failure(message, name, where_of(error), format_error(error))


def _traceback_of_cause(error: Dead | Retry | Snooze) -> str | None:
    """Return a traceback only if another exception led to this exception, which the handler raised
    on purpose."""
    context = None if error.__suppress_context__ else error.__context__
    return format_error(error) if error.__cause__ or context else None
