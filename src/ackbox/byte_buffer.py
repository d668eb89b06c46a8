"""The memory that requests hold between their first byte and their commit.

The buffer is bounded, and a request that never ends cannot keep other requests out: when the buffer
is full, the slowest request that is still arriving loses its bytes. A complete request never loses
its bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from ackbox.errors import Overloaded


class Revoked(Exception):
    """The reservation was revoked: other requests needed the room, and this request was the
    slowest."""


class Reservation:
    """The bytes of one request that is still arriving."""

    __slots__ = ("_began", "_last", "_recent", "is_revoked", "on_revoked", "size")

    def __init__(self, now: float, on_revoked: Callable[[], object]) -> None:
        self.size = 0
        self.is_revoked = False
        self.on_revoked = on_revoked
        self._began = self._last = now
        self._recent = 0.0

    def note_arrival(self, size: int, now: float) -> None:
        self._recent = self._recent * 0.5 ** (now - self._last) + size
        self._last = now

    def rate(self, now: float) -> float:
        """Return the recent rate in bytes per second. The weight of a byte halves every second, so
        a request that arrived quickly and then stopped soon counts as slow."""
        age = now - self._began
        return self._recent * 0.5 ** (now - self._last) / (1 - 0.5**age) if age > 0 else inf


class ByteBuffer:
    """The byte budget of the process. Every method runs on the event loop."""

    def __init__(
        self, limit: int, *, note_refusal: Callable[[str], None], monotonic: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._note_refusal = note_refusal
        self._monotonic = monotonic
        self._arriving: set[Reservation] = set()
        self.held = 0

    def hold(self, size: int) -> None:
        """Account for the bytes of a complete request; the caller releases them when it is done.
        Raises `Overloaded` if other complete requests leave no room."""
        if self.held + size > self._limit and self.held:
            self._make_room(size)
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size

    @contextmanager
    def reserve(self, on_revoked: Callable[[], object]) -> Iterator[Reservation]:
        """Yield a reservation for a request that is still arriving. If the request is not complete
        at the end of the block, its bytes are released."""
        reservation = Reservation(self._monotonic(), on_revoked)
        try:
            yield reservation
        finally:
            if reservation in self._arriving:
                self._end(reservation)

    def extend(self, reservation: Reservation, size: int) -> None:
        """Account for `size` more bytes of the request. Raises `Revoked` if the reservation was
        revoked, and `Overloaded` if complete requests leave no room."""
        reservation.note_arrival(size, self._monotonic())
        if self.held + size > self._limit and self.held:
            self._make_room(size)
        _check(reservation)
        self._arriving.add(reservation)
        reservation.size += size
        self.held += size

    def complete(self, reservation: Reservation) -> None:
        """Mark the request as complete. Its bytes stay held until the caller releases them. Raises
        `Revoked` if the reservation was revoked."""
        _check(reservation)
        self._arriving.discard(reservation)

    def _make_room(self, size: int) -> None:
        """Revoke the slowest reservations one by one. Revoke none, and raise `Overloaded`, if even
        all of them together would not free enough bytes."""
        if self.held + size - sum(r.size for r in self._arriving) > self._limit:
            self._note_refusal("buffer_bytes")
            raise Overloaded("The ingest buffer has no room for more bytes; try again soon.")
        now = self._monotonic()
        while self.held + size > self._limit and self._arriving:
            slowest = min(self._large_reservations(), key=lambda r: r.rate(now))
            self._end(slowest)
            slowest.is_revoked = True
            slowest.on_revoked()
            self._note_refusal("slow_body")

    def _large_reservations(self) -> list[Reservation]:
        """Return the reservations that hold at least half the average. All others together hold
        less than half of the bytes: a small slow body is not what fills the buffer."""
        total = sum(r.size for r in self._arriving)
        return [r for r in self._arriving if 2 * r.size * len(self._arriving) >= total]

    def _end(self, reservation: Reservation) -> None:
        self._arriving.discard(reservation)
        self.held -= reservation.size


def _check(reservation: Reservation) -> None:
    if reservation.is_revoked:
        raise Revoked
