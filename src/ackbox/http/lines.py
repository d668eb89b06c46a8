"""The lines of a body that came in pieces."""

from collections import deque
from collections.abc import Iterator


class Lines:
    """Takes lines from pieces one at a time, and lets go of each piece when it is used up: a list
    of millions of short lines would take many times their room.

    A line longer than `limit` is cut, but not to less than `limit + 1` bytes.
    """

    def __init__(self, pieces: deque[bytes], limit: int) -> None:
        self._pieces = pieces
        self._limit = limit
        self._used = 0
        self.held = sum(map(len, pieces))

    def __iter__(self) -> Iterator[bytes]:
        """Each line without its end, which is LF or CRLF. The last one may lack it."""
        begun: list[bytes] = []  # a line that goes on in the next piece
        while self._pieces:
            piece = self._pieces.popleft()
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                begun.append(piece[start:end])
                yield _joined(begun)
                begun = []
                start = end + 1
            if start < len(piece) and _size(begun) <= self._limit + 1:
                begun.append(piece[start:])
            self._used += len(piece)
        if begun:
            yield _joined(begun)

    def let_go(self) -> int:
        """How many bytes are no longer held since the last call."""
        used, self._used = self._used, 0
        self.held -= used
        return used


def _joined(parts: list[bytes]) -> bytes:
    line = parts[0] if len(parts) == 1 else b"".join(parts)
    return line.removesuffix(b"\r")


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))
