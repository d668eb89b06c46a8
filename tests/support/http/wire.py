"""A minimal HTTP client that sends exact bytes, also those that no client library would send."""

import json
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_HEADERS_END = b"\r\n\r\n"


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Disconnected(Exception):
    """The server closed the connection before a response was complete."""


class Wire:
    """One connection."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout: float = 15.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Self:
        self.socket.sendall(data)
        return self

    def send_ignoring_close(self, data: bytes) -> Self:
        """Send all of it, or as much as the server reads before it closes the connection."""
        with suppress(ConnectionError, TimeoutError):
            self.socket.sendall(data)
        return self

    def read(self) -> Response:
        """Return the next response; skip a `100 Continue` before it."""
        while (head := self._head())[0] == 100:
            pass
        status, headers = head
        return Response(status, headers, self._body(headers))

    def read_interim(self) -> int:
        return self._head()[0]

    def is_closed(self, *, within: float = 15.0) -> bool:
        """Discard everything that the server still sends; return whether it then closes."""
        self.socket.settimeout(within)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def _head(self) -> tuple[int, dict[str, str]]:
        while _HEADERS_END not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(_HEADERS_END)
        first, *lines = head.decode("latin-1").split("\r\n")
        status_line = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z \-']*", first)
        assert status_line, f"not a status line: {first!r}"
        pairs = (line.split(": ", 1) for line in lines)
        return int(status_line[1]), {name.lower(): value for name, value in pairs}

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return self._chunks()
        return self._take(int(headers.get("content-length", "0")))

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(self._line(), 16):
            body += self._take(size)
            assert self._take(2) == b"\r\n"
        assert self._take(2) == b"\r\n"
        return bytes(body)

    def _line(self) -> bytes:
        while b"\r\n" not in self._received:
            self._receive()
        line, _, self._received = self._received.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        parts = [self._received]
        missing = size - len(self._received)
        while missing > 0:
            self._received = b""
            self._receive()
            parts.append(self._received)
            missing -= len(self._received)
        whole = b"".join(parts)
        self._received = whole[size:]
        return whole[:size]

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("closed")
        self._received += data


def request(
    method: str = "GET",
    path: str = "/health",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> bytes:
    """Return a well-formed request; `Content-Length` and `Host` are added unless given."""
    named = {"Host": "localhost", **(headers or {})}
    if body is not None:
        named = {"Content-Length": str(len(body)), **named}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def chunked(method: str, path: str, chunks: list[bytes]) -> bytes:
    head = request(method, path, headers={"Transfer-Encoding": "chunked"})
    return head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def exchange(port: int, data: bytes, *, host: str = "127.0.0.1") -> Response:
    """Send one request on a connection of its own and return the response."""
    with Wire(port, host=host) as wire:
        return wire.send(data).read()


def exchange_together(port: int, requests: list[bytes]) -> list[Response]:
    """Send all requests, each on its own connection, before the first response is read."""
    wires = [Wire(port) for _ in requests]
    try:
        for wire, data in zip(wires, requests, strict=True):
            wire.send(data)
        return [wire.read() for wire in wires]
    finally:
        for wire in wires:
            wire.socket.close()
