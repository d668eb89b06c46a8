"""The memory that requests hold between their first byte and their commit.

The buffer is bounded, and a request that never ends cannot keep other requests out: when the buffer
is full, the slowest request that is still arriving loses its bytes. A complete request never loses
its bytes.
"""

from collections.abc import Callable
from math import inf
from typing import Self

from msgspec import Struct

from ackbox.errors import Overloaded


class Revoked(Exception):
    """The reservation was revoked: other requests needed the room, and this request was the
    slowest."""


class ByteBuffer:
    """The byte budget of the process. Every method runs on the event loop."""

    def __init__(
        self, limit: int, *, note_refusal: Callable[[str], None], monotonic: Callable[[], float]
    ) -> None:
        self.monotonic = monotonic
        self.arriving: set[Reservation] = set()
        self.held = 0
        self.limit = limit
        self._note_refusal = note_refusal

    def make_room(self, size: int) -> None:
        """Revoke the slowest reservations one by one until `size` bytes fit. Revoke none, and raise
        `Overloaded`, if even all of them together would not free enough bytes. A request larger
        than the buffer gets the whole buffer."""
        if not self.held:
            return
        if self.held + size - sum(r.size for r in self.arriving) > self.limit:
            self._note_refusal("buffer_bytes")
            raise Overloaded("The ingest buffer has no room for more bytes; try again soon.")
        now = self.monotonic()
        while self.held + size > self.limit and self.arriving:
            min(self._large_reservations(), key=lambda r: r.rate(now)).revoke()
            self._note_refusal("slow_body")

    def _large_reservations(self) -> "list[Reservation]":
        """Return the reservations that hold at least half the average. All others together hold
        less than half of the bytes: a small slow body is not what fills the buffer."""
        total = sum(r.size for r in self.arriving)
        return [r for r in self.arriving if 2 * r.size * len(self.arriving) >= total]


def _ignore_revocation() -> None: ...


class Reservation(Struct, eq=False):
    """The bytes of one request. Use it as `with Reservation(buffer) as reservation` around reading
    the request and making its events durable: what it still holds is released at the end.

    A request that arrives as a whole calls `hold`. Any other calls `add` for each piece, and
    `complete` after the last one; in between, its reservation may be revoked.
    """

    buffer: ByteBuffer
    size: int = 0
    on_revoked: Callable[[], object] = _ignore_revocation
    is_revoked: bool = False
    began: float | None = None
    last: float = 0.0
    recent: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.buffer.arriving.discard(self)
        self.buffer.held -= self.size

    def hold(self, size: int) -> None:
        """Account for the bytes of a complete request. Raise `Overloaded` if other complete
        requests leave no room."""
        if self.buffer.held + size > self.buffer.limit:
            self.buffer.make_room(size)
        self.size += size
        self.buffer.held += size

    def grow(self, size: int) -> None:
        """Account for the bytes that a complete request needs besides its own. Raise `Overloaded`
        if other complete requests leave no room; a request that is alone always has room."""
        size += self.size
        self.release(self.size)
        self.hold(size)

    def add(self, size: int) -> None:
        """Account for `size` bytes of a request that is still arriving. Raise `Revoked` if the
        reservation was revoked, and `Overloaded` if complete requests leave no room."""
        self._note_arrival(size, self.buffer.monotonic())
        if self.buffer.held + size > self.buffer.limit:
            self.buffer.make_room(size)
        self._check()
        self.buffer.arriving.add(self)
        self.size += size
        self.buffer.held += size

    def complete(self) -> None:
        """Note that the request has arrived: it can no longer be revoked. Raise `Revoked` if it
        was."""
        self._check()
        self.buffer.arriving.discard(self)

    def release(self, size: int) -> None:
        """Give back some of the bytes, because they are no longer in memory."""
        self.size -= size
        self.buffer.held -= size

    def revoke(self) -> None:
        self.buffer.arriving.discard(self)
        self.release(self.size)
        self.is_revoked = True
        self.on_revoked()

    def rate(self, now: float) -> float:
        """Return the recent rate in bytes per second. The weight of a byte halves every second, so
        a request that arrived quickly and then stopped soon counts as slow."""
        age = 0.0 if self.began is None else now - self.began
        return self.recent * 0.5 ** (now - self.last) / (1 - 0.5**age) if age > 0 else inf

    def _note_arrival(self, size: int, now: float) -> None:
        if self.began is None:
            self.began = now
        self.recent = self.recent * 0.5 ** (now - self.last) + size
        self.last = now

    def _check(self) -> None:
        if self.is_revoked:
            raise Revoked
