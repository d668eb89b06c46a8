"""HTTP by hand: what no client library would send, byte for byte, and the answer to it."""

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


class Cut(Exception):
    """The server closed the connection before an answer was whole."""


class Wire:
    """One connection."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout: float = 15.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self._seen = b""

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

    def send_all_it_takes(self, data: bytes) -> Self:
        """The server may stop listening before the end."""
        with suppress(ConnectionError, TimeoutError):
            self.socket.sendall(data)
        return self

    def read(self) -> Response:
        """The next answer; a `100 Continue` before it is passed over."""
        while (head := self._head())[0] == 100:
            pass
        status, headers = head
        return Response(status, headers, self._body(headers))

    def read_interim(self) -> int:
        return self._head()[0]

    def is_closed(self, *, within: float = 15.0) -> bool:
        """Whether the server ends the connection, after whatever it has still to say."""
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
        while _HEADERS_END not in self._seen:
            self._more()
        head, _, self._seen = self._seen.partition(_HEADERS_END)
        first, *lines = head.decode("latin-1").split("\r\n")
        found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z \-']*", first)
        assert found, f"not a status line: {first!r}"
        pairs = (line.split(": ", 1) for line in lines)
        return int(found[1]), {name.lower(): value for name, value in pairs}

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
        while b"\r\n" not in self._seen:
            self._more()
        line, _, self._seen = self._seen.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        parts = [self._seen]
        missing = size - len(self._seen)
        while missing > 0:
            self._seen = b""
            self._more()
            parts.append(self._seen)
            missing -= len(self._seen)
        whole = b"".join(parts)
        self._seen = whole[size:]
        return whole[:size]

    def _more(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionError as error:
            raise Cut(str(error)) from error
        if not data:
            raise Cut("closed")
        self._seen += data


def request(
    method: str = "GET",
    path: str = "/health",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> bytes:
    """A well-formed request, `Content-Length` and `Host` included unless given."""
    named = {"Host": "localhost", **(headers or {})}
    if body is not None:
        named = {"Content-Length": str(len(body)), **named}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def chunked(method: str, path: str, chunks: list[bytes]) -> bytes:
    head = request(method, path, headers={"Transfer-Encoding": "chunked"})
    return head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


def exchange(port: int, data: bytes, *, host: str = "127.0.0.1") -> Response:
    """One request on a connection of its own."""
    with Wire(port, host=host) as wire:
        return wire.send(data).read()


def exchange_together(port: int, requests: list[bytes]) -> list[Response]:
    """All are sent, each on a connection of its own, before the first answer is read."""
    wires = [Wire(port) for _ in requests]
    try:
        for wire, data in zip(wires, requests, strict=True):
            wire.send(data)
        return [wire.read() for wire in wires]
    finally:
        for wire in wires:
            wire.socket.close()
