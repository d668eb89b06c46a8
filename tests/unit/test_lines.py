"""The lines of a body do not depend on how it was split into pieces."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ackbox.http.lines import Lines

pieces = st.lists(st.text("ab\n\r", max_size=6).map(str.encode), max_size=8)


@given(pieces)
def test_the_split_into_pieces_does_not_change_the_lines(cut: list[bytes]) -> None:
    whole = b"".join(cut)
    expected = [line.removesuffix(b"\r") for line in whole.split(b"\n")]
    if whole.endswith(b"\n") or not whole:
        expected.pop()

    assert list(Lines(deque(cut), 100)) == expected


@given(pieces, st.integers(0, 5))
def test_a_long_line_is_cut_and_still_too_long(cut: list[bytes], limit: int) -> None:
    exact = list(Lines(deque(cut), 100))

    lines = list(Lines(deque(cut), limit))

    assert [len(line) > limit for line in lines] == [len(line) > limit for line in exact]
    assert [line for line in lines if len(line) <= limit] == [
        line for line in exact if len(line) <= limit
    ]
    assert all(len(line) <= limit + 14 for line in lines)


def test_pieces_are_released_as_they_are_used() -> None:
    lines = Lines(deque([b"a\nb\n", b"c\n", b"d"]), 100)
    iterator = iter(lines)

    assert [next(iterator), lines.take_used()] == [b"a", 0]
    assert [next(iterator), next(iterator), lines.take_used()] == [b"b", b"c", 4]
    assert [*iterator] == [b"d"]
    assert lines.take_used() == 3
