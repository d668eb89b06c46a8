"""The nesting depth is exact for every document, and cheap for the most hostile one (S20)."""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackbox.http.nesting import is_deeper_than

MIB = 1024 * 1024
marks = st.text(st.sampled_from('[]{}"\\,x\u00fc'), max_size=6)
documents = st.recursive(
    st.none() | marks,
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(marks, inner, max_size=4),
    max_leaves=200,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(documents)
@example(["[", ["]"], [["["]]])
@example([['"'], ["\\"], ['\\"[']])
def test_the_depth_is_that_of_the_parsed_document(value: Any) -> None:
    written = json.dumps(value, ensure_ascii=False).encode()
    deep = depth(value)

    assert not is_deeper_than(written, deep)
    if deep:
        assert is_deeper_than(written, deep - 1)


@pytest.mark.parametrize("levels", [1, 7, 8, 9, 512, 513])
@pytest.mark.parametrize("before", [b"", b"[],", b'"[[",', b'"\\\\","]",' * 50])
def test_a_level_too_many_is_found_wherever_it_is(before: bytes, levels: int) -> None:
    document = b"[%s%s%s]" % (before, b"[" * levels, b"]" * levels)

    assert is_deeper_than(document, levels)
    assert not is_deeper_than(document, levels + 1)


def filled(opening: bytes, unit: bytes) -> bytes:
    """Return 1 MiB of `unit`, nested in the arrays of `opening`."""
    room = MIB - 2 * len(opening)
    return opening + (unit * (room // len(unit))).rstrip(b",") + b"]" * len(opening)


HOSTILE = {
    "empty arrays": filled(b"[" * 511, b"[],"),
    "towers": filled(b"[", b"[" * 511 + b"]" * 511 + b","),
    "low towers near the limit": filled(b"[" * 490, b"[[[[[[]]]]]],"),
    "empty strings": filled(b"[" * 512, b'"",'),
    "brackets in strings": filled(b"[" * 512, b'"[",'),
    "brackets in and around strings": filled(b"[" * 500, b'["[]"],'),
    "escaped quotes": filled(b"[" * 512, b'"\\"",'),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_document_costs_about_as_much_as_parsing_an_ordinary_one(  # S20
    kind: str,
) -> None:
    ordinary = filled(b"[", b'{"id":12345,"name":"a name","tags":["a","b"],"paid":true},')

    hostile = cpu_seconds(lambda: is_deeper_than(HOSTILE[kind], 256))

    assert hostile < 2 * cpu_seconds(lambda: msgspec.json.decode(ordinary))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the shortest of several tries, so that other processes have little influence."""
    tries = []
    for _ in range(5):
        start = time.process_time()
        work()
        tries.append(time.process_time() - start)
    return min(tries)
