"""Reading a request without FastAPI: its headers once, its body within bounds of size and time."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from ackbox.http.problems import HttpError
from ackbox.model import RandomBits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SECONDS = 10.0
BYTES_A_SECOND = 64 * 1024
_CLOSE = ((b"connection", b"close"),)
_READ = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"x-request-id",
    )
)
_TWICE = b""  # no header has this name
_REQUEST_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)


class ClientGone(Exception):
    """The client left before its request was whole."""


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers the fast path looks at; one that stands twice with two values is noted."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _READ and found.setdefault(name, value) != value:
            found[_TWICE] = name
    return found


def request_id(given: bytes | None, random_bits: RandomBits) -> str:
    """The sender's own id if it is a sane one, else a new one (W14)."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{random_bits(64):016x}"


def check_headers(headers: dict[bytes, bytes]) -> None:
    """What no body can make good."""
    if _TWICE in headers:
        name = headers[_TWICE].decode()
        raise HttpError(400, f"The header {name} is given twice with two values.")
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"identity", b""):
        raise HttpError(415, "Content-Encoding must be identity: send the body uncompressed.")
    if headers.get(b"content-type", b"")[:10].lower() == b"multipart/":
        raise HttpError(415, "Content-Type must not be multipart: send JSON.")


def announced_length(headers: dict[bytes, bytes], limit: int) -> int | None:
    """Content-Length, refused before a byte is read when it is over the limit."""
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise HttpError(400, "Content-Length must be a whole number.")
    if int(text) > limit:
        raise too_large(limit)
    return int(text)


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"The body is larger than {limit} bytes.")


def local_path(scope: Scope) -> str:
    """The path below the prefix another app may have mounted us under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body. Most come in one piece."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
    else:
        body = await _join(receive, message, limit)
    if len(body) > limit:
        raise too_large(limit)
    return body


async def body_chunks(receive: Receive, first: Message) -> AsyncIterator[bytes]:
    """A body in pieces. It must keep coming: within ten seconds, and one more for every 64 KiB."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BODY_SECONDS
    message = first
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        deadline += len(chunk) / BYTES_A_SECOND
        yield chunk
        if not message.get("more_body", False):
            return
        try:
            message = await asyncio.wait_for(receive(), deadline - loop.time())
        except TimeoutError:
            raise HttpError(408, "The body came too slowly.", _CLOSE) from None


async def _join(receive: Receive, first: Message, limit: int) -> bytes:
    body = bytearray()
    async for chunk in body_chunks(receive, first):
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)
