"""Counts the calls of ackbox functions in this thread, and names them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import ackbox

ROOT = f"{Path(ackbox.__file__).parent}/"
STORES = f"{ROOT}stores/"


class CallTrace:
    """Names each call of an ackbox function while `counting` is set.

    A coroutine counts once, however often it is resumed, and also if it began before `counting` was
    set and then calls another function. Comprehensions do not count. A call of a store counts, but
    not what the store does inside. `belongs` may leave calls out: it gets the frame of the call and
    those of its callers, the innermost first.
    """

    def __init__(self, belongs: Callable[[list[FrameType]], bool]) -> None:
        self.counting = False
        self.calls: list[str] = []
        self._belongs = belongs
        self._seen: set[FrameType] = set()
        self._counted: set[FrameType] = set()

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        self._seen.clear()
        self._counted.clear()

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _is_function_of_ours(frame) or frame in self._seen:
            return
        self._seen.add(frame)  # kept, so that no other frame gets its identity
        chain = [frame, *_callers(frame)]
        if self.counting and not any(_is_in_a_store(caller) for caller in chain[1:]):
            for length in range(1, len(chain) + 1):  # the callers first
                self._count(chain[-length:])

    def _count(self, chain: list[FrameType]) -> None:
        frame = chain[0]
        if frame not in self._counted and _is_function_of_ours(frame) and self._belongs(chain):
            self._counted.add(frame)
            self.calls.append(frame.f_code.co_qualname)


def _callers(frame: FrameType) -> Iterator[FrameType]:
    caller = frame.f_back
    while caller is not None:
        yield caller
        caller = caller.f_back


def _is_function_of_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(ROOT) and (
        not code.co_name.startswith("<") or code.co_name == "<lambda>"
    )


def _is_in_a_store(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(STORES)
