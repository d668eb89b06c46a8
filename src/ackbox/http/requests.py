"""Reading a request without FastAPI: its headers once, its body within bounds of size; the protocol
sees to its time."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException

from ackbox.byte_buffer import ByteBuffer, Revoked
from ackbox.http.problems import HttpError
from ackbox.model import RandomBits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]
WHOLE_RESPONSE = "ackbox.whole_answer"
"""The ASGI extension by which our own protocol takes an answer in one piece: status, headers, body;
it says whether it did."""

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_READ = frozenset(
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
_LENGTH_DIGITS = 20  # the parser takes no more; a longer one would be slow to read
_TWICE = b""  # no header has this name
_BAD_ESCAPE = re.compile(rb"%(?![\da-fA-F]{2})")
_DROPPED = "The ingest buffer is full, and this body arrived slowest; send it again, faster."
_SMALL_PIECE = 4096
_REQUEST_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)


class ClientGone(Exception):
    """The client left before its request was whole."""


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers the fast path looks at; one that stands twice with two values is noted, except
    the request id, of which the first counts."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _READ:
            text = value.strip()  # the parser leaves white space at its end
            if found.setdefault(name, text) != text and name != b"x-request-id":
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
    if encoding is not None and encoding.lower() not in (b"identity", b""):
        raise HttpError(415, "Content-Encoding must be identity: send the body uncompressed.")
    if headers.get(b"content-type", b"")[:10].lower() == b"multipart/":
        raise HttpError(415, "Content-Type must not be multipart: send JSON.")


def check_length(headers: dict[bytes, bytes], limit: int) -> None:
    """Content-Length, refused before a byte is read when it is over the limit."""
    text = headers.get(b"content-length", b"0").rstrip()
    if not text.isdigit():
        raise HttpError(400, "Content-Length must be a whole number.")
    if len(text) > _LENGTH_DIGITS or int(text) > limit:
        raise too_large(limit)


def check_url(scope: Scope) -> None:
    """Starlette would put a replacement for what is not UTF-8, and find what nobody asked for."""
    for part, text in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if _BAD_ESCAPE.search(text):
            raise HttpError(400, f"The {part} has a % that two hexadecimal digits do not follow.")
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise HttpError(400, f"The {part} must be UTF-8 when its % are undone.") from None


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"The body is larger than {limit} bytes.")


def local_path(scope: Scope) -> str:
    """The path below the prefix another app may have mounted us under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def read_body(receive: Receive, limit: int, buffer: ByteBuffer) -> bytes:
    """The whole body; most come in one piece. The caller gives its bytes back to the buffer."""
    message = await receive()
    if message["type"] == "http.disconnect" or message.get("more_body", False):
        return b"".join(await _collect(receive, message, limit, buffer))
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise too_large(limit)
    buffer.hold(len(body))
    return body


async def read_pieces(receive: Receive, limit: int, buffer: ByteBuffer) -> deque[bytes]:
    """The whole body in the pieces it came in, so that each can be freed as soon as it is used. The
    caller gives their bytes back to the buffer."""
    return await _collect(receive, await receive(), limit, buffer)


async def _collect(
    receive: Receive, message: Message, limit: int, buffer: ByteBuffer
) -> deque[bytes]:
    """Bytes are held as they arrive, not as they are announced: a few slow senders must not keep
    all others out. If the buffer is full and this is the slowest body, the read ends at once."""
    pieces: deque[bytes] = deque()
    try:
        async with asyncio.timeout(None) as reading:
            with buffer.reserve(on_revoked=lambda: reading.reschedule(0)) as reservation:
                while message["type"] != "http.disconnect":
                    piece = message.get("body", b"")
                    if reservation.size + len(piece) > limit:
                        raise too_large(limit)
                    buffer.extend(reservation, len(piece))
                    _append(pieces, piece)
                    if not message.get("more_body", False):
                        buffer.complete(reservation)
                        return pieces
                    message = await receive()
        raise ClientGone
    except (Revoked, TimeoutError):
        raise HttpError(408, _DROPPED) from None


def _append(pieces: deque[bytes], piece: bytes) -> None:
    """Join small pieces: millions of a few bytes would take many times their room."""
    if pieces and len(pieces[-1]) < _SMALL_PIECE:
        pieces[-1] += piece
    else:
        pieces.append(piece)


@asynccontextmanager
async def watched(receive: Receive) -> AsyncIterator[Callable[[], bool]]:
    """Tell whether the client has disconnected, for a request whose body has been read."""
    watch = asyncio.ensure_future(_disconnect(receive))
    try:
        yield watch.done
    finally:
        watch.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def limited(receive: Receive, limit: int) -> Receive:
    """For FastAPI, which reads whatever comes. It lets its own exceptions alone pass."""
    size = 0

    async def receive_within_limit() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, str(too_large(limit)))
        return message

    return receive_within_limit
