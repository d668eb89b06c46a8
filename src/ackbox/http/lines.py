"""The lines of a body that arrived in pieces."""

from collections import deque
from collections.abc import Iterator


class Lines:
    """Splits pieces into lines one at a time, and frees each piece when it is used up: a list of
    millions of short lines would take many times as much memory as the body.

    A line longer than `limit` may be cut, but never to less than `limit + 1` bytes.
    """

    def __init__(self, pieces: deque[bytes], limit: int) -> None:
        self._pieces = pieces
        self._limit = limit
        self._used = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line without its LF or CRLF. The last line may have no line end."""
        begun: list[bytes] = []  # the line that continues in the next piece
        while self._pieces:
            piece = self._pieces.popleft()
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                begun.append(piece[start:end])
                yield _join(begun)
                begun = []
                start = end + 1
            if start < len(piece) and _size(begun) <= self._limit + 1:
                begun.append(piece[start:])
            self._used += len(piece)
        if begun:
            yield _join(begun)

    def take_used(self) -> int:
        """Return how many bytes were freed since the last call."""
        used, self._used = self._used, 0
        return used


def _join(parts: list[bytes]) -> bytes:
    line = parts[0] if len(parts) == 1 else b"".join(parts)
    return line.removesuffix(b"\r")


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))
