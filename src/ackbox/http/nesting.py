"""Measure how deep valid JSON is nested, by a few passes in C over the whole document (S20).

A Python step for every string and bracket of 1 MiB would block the event loop for 50 ms. Every pass
here is linear and cheap: the most hostile document costs about as much as parsing an ordinary one.
"""

from itertools import accumulate
from operator import add

_OTHER_BYTES = bytes(set(range(256)) - set(b'[]{}"'))
_BRACES_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_QUOTE_BITS = bytes.maketrans(b'[]"', b"001")
_BRACKET_BITS = bytes.maketrans(b"[]", b"10")
_OUTSIDE, _INSIDE = b"01"
_UNMARK = bytes.maketrans(bytes(c ^ _OUTSIDE for c in b"[]"), b"[]")
_MARKED_STRINGS = bytes([*(c ^ _INSIDE for c in b'[]"'), ord('"') ^ _OUTSIDE])


def is_deeper_than(document: bytes, limit: int) -> bool:
    """Return whether valid JSON has more levels of arrays and objects than `limit`."""
    if document.count(b"[") + document.count(b"{") <= limit:
        return False
    brackets = _brackets_outside_strings(document)
    return brackets.count(b"[") > limit and _depth(brackets) > limit


def _brackets_outside_strings(document: bytes) -> bytes:
    """Return the brackets of the document in order, with `[` and `]` for both kinds."""
    if b"\\" in document:
        document = document.replace(b"\\\\", b"..").replace(b'\\"', b"..")
    marks = document.translate(_BRACES_AS_BRACKETS, _OTHER_BYTES)
    # Two adjacent quotes are an empty string, or the end of one string and the start of the next.
    # Without them, every other mark stays inside or outside of strings as before.
    marks = marks.replace(b'""', b"")
    if marks.count(b'"') * 8 < len(marks):
        return b"".join(marks.split(b'"')[::2])
    return _without_strings(marks)


def _without_strings(marks: bytes) -> bytes:
    """Remove quotes and everything between them. With many short strings this is faster than a
    split. A bit of `inside` is set after an odd number of quotes: it is the XOR of all quote bits
    up to its position."""
    inside = int(marks.translate(_QUOTE_BITS), 2)
    step = 1
    while step < len(marks):
        inside ^= inside >> step
        step *= 2
    sides = format(inside, f"0{len(marks)}b").encode()
    marked = int.from_bytes(marks, "big") ^ int.from_bytes(sides, "big")
    return marked.to_bytes(len(marks), "big").translate(_UNMARK, _MARKED_STRINGS)


def _depth(brackets: bytes) -> int:
    """Return the deepest level. Eight brackets are packed into one byte; tables give the level
    after each byte and the highest level within it."""
    brackets += b"]" * (-len(brackets) % 8)
    packed = int(brackets.translate(_BRACKET_BITS), 2).to_bytes(len(brackets) // 8, "big")
    rises = memoryview(packed.translate(_RISES)).cast("b")
    deepest: int = max(map(add, accumulate(rises, initial=0), packed.translate(_PEAKS)))
    return deepest


def _levels(byte: int) -> list[int]:
    """Return the level after each of eight brackets, relative to the level before them."""
    return list(accumulate(1 if byte >> bit & 1 else -1 for bit in range(7, -1, -1)))


_RISES = bytes(_levels(byte)[-1] % 256 for byte in range(256))
_PEAKS = bytes(max(0, *_levels(byte)) for byte in range(256))
