"""Tracebacks of handlers: where a run failed, or where it hangs, without local variables.

The text looks like Python's own and is bounded, so that it fits into a row and a log line. The
calls by which ackbox reached the handler are left out.
"""

import linecache
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from msgspec import Struct

from ackbox.model import TRACEBACK_LIMIT
from ackbox.text import printable

_OWN = str(Path(__file__).parents[1]) + "/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
_OUTER = (_OWN, threading.__file__)
_FRAMES = 16
_FRAMES_OF_A_CAUSE = 6
_CHAINED = 4
_TEXT_LIMIT = 1000
_LINE_LIMIT = 200
_RAISED = "Traceback (most recent call last):"
_RUNNING = "Stack (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


class CodeLocation(Struct, frozen=True):
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({Path(self.file).name}:{self.line})"

    @property
    def is_users(self) -> bool:
        """True for code that is neither in a library nor in ackbox nor generated at run time."""
        library = self.file.startswith(_STANDARD) or any(part in self.file for part in _INSTALLED)
        return not library and not self.file.startswith(("<", _OWN))


Stack = list[CodeLocation]
"""The calls, from the outermost to the innermost."""


def where_of(error: BaseException) -> str | None:
    """Name where an exception was raised, as `innermost_of` does."""
    return innermost_of(_raised_through(error))


def innermost_of(stack: Stack) -> str | None:
    """Name the innermost call in the user's own code, as `grant_access (app.py:12)`. If there is
    none, name the innermost call; if only ackbox was involved, return None."""
    innermost: CodeLocation | None = None
    for at in reversed(stack):
        if at.is_users:
            return str(at)
        if innermost is None and not at.file.startswith(_OWN):
            innermost = at
    return None if innermost is None else str(innermost)


def format_error(error: BaseException) -> str | None:
    """Return the traceback of an exception, after those of the exceptions that led to it. Return
    None if ackbox itself raised the exception and no other led to it."""
    *causes, _ = _chain(error)
    stack = _raised_through(error)
    if not causes and not stack:
        return None
    lines: list[str] = []
    for cause, relation in causes:
        lines += [*_format_cause(cause), "", relation, ""]
    return _bounded([*lines, *_format_exception(error, stack, _FRAMES)])


def stack_of_thread(thread: int | None) -> Stack:
    """Return the stack of a running thread, empty if it has ended."""
    frame = sys._current_frames().get(thread or 0)
    stack: deque[CodeLocation] = deque()
    while frame is not None:
        stack.appendleft(_location(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return _without_outer(stack)


def stack_of_coroutine(coroutine: Any) -> Stack:
    """Return the stack of a suspended coroutine and of what it awaits, empty if it has ended."""
    frames = _suspended(coroutine)
    return _without_outer([_location(frame.f_code, frame.f_lineno) for frame in frames])


def format_stack(stack: Stack) -> str | None:
    return _bounded([_RUNNING, *_format_frames(stack, _FRAMES)]) if stack else None


def text_of(error: BaseException) -> str:
    """Return the text of an exception, even if its own `__str__` fails."""
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - around a handler: its `__str__` may fail
        return f"(its text cannot be had: {type(second).__name__})"


def _suspended(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames from the outermost to the innermost; some may be generators."""
    while awaited is not None:
        for frame_name, next_name in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            frame = getattr(awaited, frame_name, None)
            if frame is not None:
                yield frame
                awaited = getattr(awaited, next_name)
                break
        else:
            return


def _chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """Return the exceptions that led to this one, oldest first, and this one last. Each comes with
    the sentence that Python prints after it."""
    chain: deque[tuple[BaseException, str]] = deque([(error, "")])
    seen = {id(error)}
    while len(chain) < _CHAINED:
        before, relation = _predecessor(chain[0][0])
        if before is None or id(before) in seen:
            break
        seen.add(id(before))
        chain.appendleft((before, relation))
    return list(chain)


def _predecessor(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    return None if error.__suppress_context__ else error.__context__, _CONTEXT


def _format_cause(error: BaseException) -> list[str]:
    return _format_exception(error, _raised_through(error), _FRAMES_OF_A_CAUSE)


def _format_exception(error: BaseException, stack: Stack, limit: int) -> list[str]:
    frames = _format_frames(stack, limit)
    return [*([_RAISED] if frames else []), *frames, *_format_text(error)]


def _format_text(error: BaseException) -> list[str]:
    """Return the lines that Python prints below the calls: text, notes, members of a group."""
    name, text = type(error).__name__, text_of(error)
    message = "\n".join([f"{name}: {text}" if text else name, *_notes_of(error)])
    first, *more = message[:_TEXT_LIMIT].split("\n")
    lines = [first, *(f"    {line}" for line in more)]  # indented: no line looks like a log line
    if isinstance(error, BaseExceptionGroup):
        lines += [f"  | {line}" for line in _format_group(error)]
    return lines


def _notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception. Return none if its own `__getattr__` fails, as in urllib's
    HTTPError without a body."""
    try:
        notes = getattr(error, "__notes__", None)
    except BaseException:  # noqa: BLE001 - around a handler: recorded without notes
        return []
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _format_group(group: BaseExceptionGroup[BaseException]) -> list[str]:
    """Return the lines of the first exception that is no group, and the number of the others."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    lines = _format_cause(first)
    others = len(group.exceptions) - 1
    return [*lines, f"... and {others} more"] if others else lines


def _format_frames(stack: Stack, limit: int) -> list[str]:
    lines: list[str] = []
    before = -1
    for number in _select_frames(stack, limit):
        if number > before + 1:
            lines.append(f"  ... {number - before - 1} calls left out ...")
        lines += _format_frame(stack[number])
        before = number
    return lines


def _format_frame(at: CodeLocation) -> list[str]:
    line = f'  File "{at.file}", line {at.line}, in {at.name}'
    source = linecache.getline(at.file, at.line).strip()
    return [line, f"    {source[:_LINE_LIMIT]}"] if source else [line]


def _select_frames(stack: Stack, limit: int) -> list[int]:
    """Return the indexes of the calls to show: one half are the innermost calls, the other half the
    innermost calls in the user's own code."""
    if len(stack) <= limit:
        return list(range(len(stack)))
    half = limit // 2
    last = range(len(stack) - half, len(stack))
    users: list[int] = []
    for number in range(last.start - 1, -1, -1):
        if len(users) == half:
            break
        if stack[number].is_users:
            users.append(number)
    return [*reversed(users), *last]


def _raised_through(error: BaseException) -> Stack:
    stack: Stack = []
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        stack.append(_location(traceback.tb_frame.f_code, traceback.tb_lineno))
        traceback = traceback.tb_next
    return _without_outer(stack)


def _without_outer(stack: Sequence[CodeLocation]) -> Stack:
    """Leave out the calls by which ackbox, in a thread or not, reached the handler."""
    first = 0
    while first < len(stack) and stack[first].file.startswith(_OUTER):
        first += 1
    return list(stack)[first:]


def _location(code: CodeType, line: int | None) -> CodeLocation:
    return CodeLocation(code.co_qualname, code.co_filename, line or 0)


def _bounded(lines: Sequence[str]) -> str:
    """Leave out lines at the top until the rest fits: the last lines say what happened."""
    kept: deque[str] = deque()
    room = TRACEBACK_LIMIT - len("...\n")
    for line in map(printable, reversed(lines)):
        room -= len(line.encode()) + 1
        if room < 0:
            kept.appendleft("...")
            break
        kept.appendleft(line)
    return "\n".join(kept)
