"""Requests of a hostile client that keep a server busy, or connections silent (F55, F57)."""

import itertools
import select
import socket
from contextlib import suppress
from random import Random
from typing import Self

from support.http.capacity import MIB
from support.http.posting import new_key, posted
from support.http.wire import Disconnected, Wire, request
from support.servers.server import Server

_CHUNKED = {"Transfer-Encoding": "chunked"}
_PIECE = 64 * 1024


def endless_trailer(
    server: Server, path: str = "/webhooks", *, body_mib: int, trailer_mib: int
) -> float:
    """Send a body without a token, then an endless trailer, whether the server reads it or not.
    Return how many MiB of the trailer were sent before the server ended its side."""
    chunk = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
    taken = sent = 0
    with Wire(server.port) as wire, suppress(ConnectionError):
        wire.send(request("POST", path, headers=_CHUNKED) + chunk * body_mib + b"0\r\nX: ")
        while sent < trailer_mib * MIB:
            wire.send(b"a" * _PIECE)
            sent += _PIECE
            if not _has_ended(wire):
                taken = sent
    return taken / MIB


def _has_ended(wire: Wire) -> bool:
    poll = select.poll()
    poll.register(wire.socket, select.POLLRDHUP)
    return bool(poll.poll(0))


def many_trailers(server: Server, mib: int, path: str = "/webhooks") -> None:
    """Send a small body, and an endless series of small trailers."""
    with Wire(server.port) as wire, suppress(ConnectionError):
        wire.send(request("POST", path, headers=_CHUNKED) + b"1\r\nx\r\n0\r\n")
        for _ in range(mib):
            wire.send(b"a:\r\n" * (MIB // 4))


def one_byte_chunks(server: Server, mib: int, path: str = "/webhooks/batch") -> None:
    """Send a body in chunks of one byte."""
    with Wire(server.port) as wire, suppress(ConnectionError):
        wire.send(request("POST", path, headers=_CHUNKED))
        for _ in range(mib):
            wire.send(b"1\r\nx\r\n" * (MIB // 6))


def closing_trailer(headers: dict[str, str] | None = None) -> bytes:
    """Return a complete request whose trailer ends the connection."""
    body = posted(new_key())
    head = request("POST", "/webhooks", headers={**_CHUNKED, **(headers or {})})
    return head + b"%x\r\n%s\r\n0\r\nConnection: close\r\n\r\n" % (len(body), body)


class ReusedConnection:
    """A client that sends as a proxy does: on its open connection, or on a new one if that has
    ended. If no response comes, it raises `TimeoutError`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._wire: Wire | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def send(self, data: bytes) -> int:
        """Send a request and return the status of its response."""
        if self._wire is not None:
            with suppress(Disconnected, ConnectionError):
                return self._exchange(self._wire, data)
            self._close()
        self._wire = Wire(self._server.port, timeout=5)
        return self._exchange(self._wire, data)

    def _exchange(self, wire: Wire, data: bytes) -> int:
        response = wire.send(data).read()
        if response.headers.get("connection") == "close":
            self._close()
        return response.status

    def _close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None


def half_close_at_random(server: Server, count: int, seed: int) -> None:
    """Send `count` pairs of requests, each cut off at a random byte, and end the client's side.
    Check that each complete request gets a response and that the connection ends."""
    random = Random(seed)
    first = request("POST", "/webhooks", b"{}")
    for _ in range(count):
        data = first + request("POST", "/webhooks", posted(payload="x" * random.randrange(100_000)))
        size = random.randrange(len(data) + 1)
        with Wire(server.port, timeout=5) as wire:
            wire.send_ignoring_close(data[:size])
            with suppress(OSError):  # the server refused early, and the connection is reset
                wire.socket.shutdown(socket.SHUT_WR)
            responses = _read_to_the_end(wire)
        assert responses >= (size >= len(first)) + (size == len(data)), (size, len(data))


def _read_to_the_end(wire: Wire) -> int:
    """Count the responses; raise `TimeoutError` if the connection stays open in silence."""
    count = 0
    with suppress(Disconnected):
        for count in itertools.count():  # noqa: B007
            wire.read()
    return count
