"""Requests that never end and hold resources that others need (F55)."""

import select
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from support.http.posting import new_key
from support.http.wire import Wire, request
from support.servers.server import Server
from support.time.polling import eventually

MIB = 1024 * 1024
NEWLINES = request("POST", "/webhooks/batch", b"\n" * (16 * MIB))
STALLED = {
    # the number of requests that fill the buffer of 64 MiB, and the bytes of each
    "batches": (4, request("POST", "/webhooks/batch", b"x" * (16 * MIB))),
    "bodies": (65, request("POST", "/webhooks", b"x" * MIB)),
    "deliveries": (65, request("POST", "/in/anyone", b"x" * MIB)),
}


def waves(*, seconds: float) -> Iterator[int]:
    """Yield the number of each wave of an attack, until the time is up."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


def hang_up_after(server: Server, data: bytes, *, count: int) -> None:
    """Send the data on `count` connections, and close them without waiting for a response."""
    with ExitStack() as open_:
        wires = [open_.enter_context(Wire(server.port)) for _ in range(count)]
        for wire in wires:
            wire.send_ignoring_close(data)


@contextmanager
def one_byte_short(server: Server, data: bytes, *, count: int) -> Iterator[list[Wire]]:
    """Yield `count` connections that have each sent all but the last byte."""
    with ExitStack() as open_:
        wires = [open_.enter_context(Wire(server.port)) for _ in range(count)]
        for wire in wires:
            wire.send_ignoring_close(data[:-1])
        yield wires


def first_responded(wires: list[Wire], *, within: float) -> Wire:
    """Wait until the server sends something on one of the connections; return that connection."""
    poll = select.poll()
    by_number = {wire.socket.fileno(): wire for wire in wires}
    for number in by_number:
        poll.register(number, select.POLLIN)
    readable = poll.poll(within * 1000)
    assert readable, f"none of {len(wires)} requests got a response within {within} seconds"
    return by_number[readable[0][0]]


def wait_for_events(server: Server, count: int) -> None:
    """Wait until the server has accepted `count` more events, which the healthy sender posts."""
    start = _accepted(server)
    eventually(lambda: _accepted(server) >= start + count, within=20)


def _accepted(server: Server) -> float:
    return server.metric('ackbox_events_received_total{receipt="new",source="webhooks"}')


MIB = 1024 * 1024


def flood(server: Server, *, events: int, connections: int, size: int = 1_000_000) -> Counter[int]:
    """Return how often each status was the response."""
    each = events // connections
    with ThreadPoolExecutor(connections) as threads:
        counts = threads.map(lambda _: _post_many(server, each, size), range(connections))
        return sum(counts, Counter[int]())


def _post_many(server: Server, events: int, size: int) -> Counter[int]:
    statuses = Counter[int]()
    filler = b"x" * size
    with Wire(server.port, timeout=60) as wire:
        for _ in range(events):
            body = b'{"idempotency_key":"%s","payload":"%s"}' % (new_key().encode(), filler)
            statuses[wire.send(request("POST", "/webhooks", body)).read().status] += 1
    return statuses
