"""Requests that hold what others need and never end (F55)."""

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.polling import eventually
from support.server import Server
from support.wire import Wire, request

MIB = 1024 * 1024
NEWLINES = request("POST", "/webhooks/batch", b"\n" * (16 * MIB))
STALLED = {
    # how many fill the buffer of 64 MiB, and what each sends but for its last byte
    "batches": (4, request("POST", "/webhooks/batch", b"x" * (16 * MIB))),
    "bodies": (65, request("POST", "/webhooks", b"x" * MIB)),
}


def waves(*, seconds: float) -> Iterator[int]:
    """Attack again and again for so long."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


def hang_up_after(server: Server, data: bytes, *, count: int) -> None:
    """So many connections send it all, and none waits for a response."""
    with ExitStack() as open_:
        wires = [open_.enter_context(Wire(server.port)) for _ in range(count)]
        for wire in wires:
            wire.send_all_it_takes(data)


@contextmanager
def one_byte_short(server: Server, data: bytes, *, count: int) -> Iterator[list[Wire]]:
    """So many connections, each of which has sent all but the last byte."""
    with ExitStack() as open_:
        wires = [open_.enter_context(Wire(server.port)) for _ in range(count)]
        for wire in wires:
            wire.send_all_it_takes(data[:-1])
        yield wires


def first_responded(wires: list[Wire], *, within: float) -> Wire:
    """Wait for the first of them that the server has something to say to."""
    poll = select.poll()
    by_number = {wire.socket.fileno(): wire for wire in wires}
    for number in by_number:
        poll.register(number, select.POLLIN)
    readable = poll.poll(within * 1000)
    assert readable, f"none of {len(wires)} requests got a response within {within} seconds"
    return by_number[readable[0][0]]


def wait_for_events(server: Server, count: int) -> None:
    """Until the healthy sender has had so many more of its own accepted."""
    start = _accepted(server)
    eventually(lambda: _accepted(server) >= start + count, within=20)


def _accepted(server: Server) -> float:
    return server.metric('ackbox_events_received_total{receipt="new",source="webhooks"}')
