"""Read a request without FastAPI: its headers in one pass, its body within a size limit. The
protocol enforces the deadlines."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

from ackbox.byte_buffer import Reservation, Revoked
from ackbox.http.problems import HttpError
from ackbox.model import RandomBits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]
WHOLE_RESPONSE = "ackbox.whole_response"
"""The ASGI extension by which our own protocol takes a response in one call: status, headers, body.
The call returns whether the protocol took the response."""

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADERS_READ = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"origin",
        b"x-request-id",
    )
)
_LENGTH_DIGITS = 20  # the parser accepts no more; a longer number would be slow to convert
_REPEATED = b""  # no header has this name
_BAD_ESCAPE = re.compile(rb"%(?![\da-fA-F]{2})")
_DROPPED = "The ingest buffer is full, and this body arrived slowest. Send it again, faster."
_SMALL_PIECE = 4096
_REQUEST_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers that the fast path uses. A header with two different values is recorded as
    repeated, except the request id: its first value counts."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _HEADERS_READ:
            text = value.strip()  # the parser leaves white space at the end of a value
            if headers.setdefault(name, text) != text and name != b"x-request-id":
                headers[_REPEATED] = name
    return headers


def choose_request_id(header: bytes | None, random_bits: RandomBits) -> str:
    """Return the sender's own request id if it is well formed, else a new id (W14)."""
    if header is not None and _REQUEST_ID.fullmatch(header):
        return header.decode()
    return f"{random_bits(64):016x}"


def check_headers(headers: dict[bytes, bytes], limit: int) -> None:
    """Raise if the headers alone make the request invalid, whatever its body is."""
    if _REPEATED in headers:
        name = headers[_REPEATED].decode()
        raise HttpError(400, f"The header {name} is given twice with two different values.")
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() not in (b"identity", b""):
        raise HttpError(415, "Content-Encoding must be identity: send the body uncompressed.")
    if headers.get(b"content-type", b"")[:10].lower() == b"multipart/":
        raise HttpError(415, "Content-Type must not be multipart: send JSON.")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > _LENGTH_DIGITS or int(length) > limit:
        raise _refuse_length(length, limit)


def check_length(headers: dict[bytes, bytes], limit: int) -> None:
    """Raise if Content-Length is over the limit, before a byte of the body is read."""
    length = headers.get(b"content-length", b"0").rstrip()
    if not length.isdigit() or len(length) > _LENGTH_DIGITS or int(length) > limit:
        raise _refuse_length(length, limit)


def _refuse_length(length: bytes, limit: int) -> HttpError:
    if length.isdigit():
        return too_large(limit)
    return HttpError(400, "Content-Length must be a whole number.")


def check_url(scope: Scope) -> None:
    """Raise if the URL is not valid UTF-8. Starlette would put replacement characters into it, and
    look up something that the client did not request."""
    for part, text in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if _BAD_ESCAPE.search(text):
            raise HttpError(400, f"The {part} has a % without two hexadecimal digits after it.")
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise HttpError(400, f"The {part} must be UTF-8 once it is percent-decoded.") from None


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"The body is larger than {limit} bytes.")


def local_path(scope: Scope) -> str:
    """Return the path without the prefix under which another app may have mounted this app."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def read_body(receive: Receive, limit: int, reservation: Reservation) -> bytes:
    """Return the whole body; most bodies arrive in one piece."""
    message = await receive()
    if message["type"] == "http.disconnect" or message.get("more_body", False):
        return b"".join(await _collect(receive, message, limit, reservation))
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise too_large(limit)
    reservation.hold(len(body))
    return body


async def read_pieces(receive: Receive, limit: int, reservation: Reservation) -> deque[bytes]:
    """Return the whole body in the pieces in which it arrived, so that each piece can be freed as
    soon as it is used."""
    return await _collect(receive, await receive(), limit, reservation)


async def _collect(
    receive: Receive, message: Message, limit: int, reservation: Reservation
) -> deque[bytes]:
    """Read the body. Bytes are held when they arrive, not when Content-Length declares them: a few
    slow senders must not keep all others out. If the buffer is full and this body is the slowest,
    the read ends at once."""
    pieces: deque[bytes] = deque()
    try:
        async with asyncio.timeout(None) as reading:
            reservation.on_revoked = lambda: reading.reschedule(0)
            while message["type"] != "http.disconnect":
                piece = message.get("body", b"")
                if reservation.size + len(piece) > limit:
                    raise too_large(limit)
                reservation.add(len(piece))
                _append(pieces, piece)
                if not message.get("more_body", False):
                    reservation.complete()
                    return pieces
                message = await receive()
        raise ClientDisconnected
    except (Revoked, TimeoutError):
        raise HttpError(408, _DROPPED) from None


def _append(pieces: deque[bytes], piece: bytes) -> None:
    """Join small pieces: millions of pieces of a few bytes would take many times their size."""
    if pieces and len(pieces[-1]) < _SMALL_PIECE:
        pieces[-1] += piece
    else:
        pieces.append(piece)


@asynccontextmanager
async def detect_disconnect(receive: Receive) -> AsyncIterator[Callable[[], bool]]:
    """Yield a function that returns whether the client has disconnected. The body of the request
    must have been read."""
    disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        yield disconnect.done
    finally:
        disconnect.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
