"""The byte buffer is bounded, and the slowest request that is still arriving is revoked (S3)."""

from contextlib import ExitStack

import pytest

from ackbox.byte_buffer import ByteBuffer, Reservation, Revoked
from ackbox.errors import Overloaded


class Buffer(ByteBuffer):
    """A buffer of 1000 bytes with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.refusals: list[str] = []
        super().__init__(1000, note_refusal=self.refusals.append, monotonic=lambda: self.now)

    def hold(self, size: int) -> Reservation:
        """Hold the bytes of a complete request."""
        reservation = Reservation(self)
        reservation.hold(size)
        return reservation


class Arriving:
    """Named requests that are still arriving."""

    def __init__(self, buffer: Buffer, open_: ExitStack) -> None:
        self._buffer = buffer
        self._open = open_
        self._reservations: dict[str, Reservation] = {}
        self.revoked: list[str] = []

    def add(self, name: str, size: int) -> None:
        if name not in self._reservations:
            reservation = Reservation(self._buffer, on_revoked=lambda: self.revoked.append(name))
            self._reservations[name] = self._open.enter_context(reservation)
        self._reservations[name].add(size)

    def complete(self, name: str) -> None:
        self._reservations[name].complete()


@pytest.fixture
def buffer() -> Buffer:
    return Buffer()


@pytest.fixture
def arriving(buffer: Buffer) -> Arriving:
    return Arriving(buffer, ExitStack())


def test_a_complete_request_revokes_the_slowest_arriving_one(
    buffer: Buffer, arriving: Arriving
) -> None:
    arriving.add("slow", 400)
    buffer.now = 4.0
    arriving.add("fast", 400)
    buffer.now = 5.0

    buffer.hold(300)

    assert arriving.revoked == ["slow"]
    assert buffer.held == 700
    assert buffer.refusals == ["slow_body"]


def test_a_request_that_stops_after_a_burst_becomes_the_slowest(
    buffer: Buffer, arriving: Arriving
) -> None:
    arriving.add("burst", 600)
    for second in range(10):
        buffer.now = float(second)
        arriving.add("steady", 30)
    buffer.now = 9.5

    buffer.hold(200)

    assert arriving.revoked == ["burst"]


def test_a_new_request_is_not_the_slowest(buffer: Buffer, arriving: Arriving) -> None:
    arriving.add("stalled", 900)
    buffer.now = 1.0

    arriving.add("new", 90)
    arriving.add("new", 90)

    assert arriving.revoked == ["stalled"]
    arriving.complete("new")


def test_small_bodies_are_spared_while_a_large_one_fills_the_buffer(
    buffer: Buffer, arriving: Arriving
) -> None:
    arriving.add("small", 1)
    buffer.now = 5.0
    arriving.add("large", 900)
    buffer.now = 6.0

    buffer.hold(150)

    assert arriving.revoked == ["large"]


def test_a_body_of_half_the_average_size_is_not_small(buffer: Buffer, arriving: Arriving) -> None:
    arriving.add("slow", 300)
    buffer.now = 5.0
    arriving.add("fast", 600)
    buffer.now = 6.0

    buffer.hold(150)

    assert arriving.revoked == ["slow"]


def test_no_more_requests_are_revoked_than_needed(buffer: Buffer, arriving: Arriving) -> None:
    for number in range(10):
        buffer.now = float(number)
        arriving.add(str(number), 100)
    buffer.now = 10.0

    buffer.hold(250)

    assert arriving.revoked == ["0", "1", "2"]
    assert buffer.held == 950


def test_a_complete_request_is_never_revoked(buffer: Buffer, arriving: Arriving) -> None:
    arriving.add("complete", 600)
    arriving.complete("complete")
    buffer.now = 60.0
    arriving.add("arriving", 300)

    with pytest.raises(Overloaded, match="no room for more bytes"):
        buffer.hold(500)

    assert arriving.revoked == []
    assert buffer.refusals == ["buffer_bytes"]
    assert buffer.held == 900


def test_a_request_that_needs_room_may_itself_be_the_slowest(
    buffer: Buffer, arriving: Arriving
) -> None:
    arriving.add("slow", 500)
    buffer.now = 8.0
    arriving.add("fast", 450)
    buffer.now = 9.0

    with pytest.raises(Revoked):
        arriving.add("slow", 100)

    assert arriving.revoked == ["slow"]
    assert buffer.held == 450


def test_a_revoked_request_can_neither_be_extended_nor_completed(
    buffer: Buffer, arriving: Arriving
) -> None:
    arriving.add("slow", 900)
    buffer.now = 1.0
    buffer.hold(500)

    with pytest.raises(Revoked):
        arriving.add("slow", 1)
    with pytest.raises(Revoked):
        arriving.complete("slow")
    assert buffer.held == 500


def test_a_request_that_ended_while_it_arrived_makes_no_room(buffer: Buffer) -> None:
    with ExitStack() as open_:
        Arriving(buffer, open_).add("disconnected", 500)
    buffer.hold(700)

    with pytest.raises(Overloaded):
        buffer.hold(400)

    assert buffer.held == 700


def test_bytes_are_released_once_however_a_request_ends(buffer: Buffer) -> None:
    with ExitStack() as open_:
        arriving = Arriving(buffer, open_)
        arriving.add("disconnected", 100)
        arriving.add("revoked", 500)
        arriving.add("complete", 100)
        arriving.complete("complete")
        buffer.now = 1.0
        held = open_.enter_context(buffer.hold(400))
        assert arriving.revoked == ["revoked"]
        assert buffer.held == 600
        held.release(150)
        assert buffer.held == 450

    assert buffer.held == 0


def test_a_complete_request_grows_only_into_free_room() -> None:
    buffer = Buffer()
    with buffer.hold(400) as reservation:
        reservation.grow(5000)  # alone, it gets the whole buffer and more
        assert buffer.held == 5400
    with buffer.hold(400), buffer.hold(400) as reservation:
        reservation.grow(200)
        with pytest.raises(Overloaded):
            reservation.grow(1)
    assert buffer.held == 0
