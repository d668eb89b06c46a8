"""Show a kept request to an operator, without what may be a secret."""

import re
from collections.abc import Set as AbstractSet

from msgspec import Struct

from ackbox.model import InboundRequest

HIDDEN = "(hidden)"
_MAY_BE_SECRET = re.compile(
    r"authorization|cookie|signature|token|secret|hmac|password|credential|api-?key"
)
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "content-length", "content-type", "date", "host", "user-agent"}
)
_TEXT_BYTES = 64 * 1024
_HEX_BYTES = 256


class ShownRequest(Struct, frozen=True):
    """A request for people. `text` is the body, or its beginning, if it is UTF-8; else `hex` is its
    beginning."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body_bytes: int
    text: str | None
    hex: str | None


def show_request(request: InboundRequest, secret_headers: AbstractSet[str] | None) -> ShownRequest:
    """Hide the values of `secret_headers`, which the source declares, and of headers whose names
    sound secret. If the source is not known (None), any header may have its token: show the values
    of harmless headers only."""
    path, mark, _ = request.url.partition("?")
    return ShownRequest(
        request.method,
        f"{path}?{HIDDEN}" if mark else path,
        tuple(
            (name, HIDDEN if _is_secret(name, secret_headers) else value)
            for name, value in request.headers
        ),
        len(request.body),
        text := _as_text(request.body),
        None if text is not None else request.body[:_HEX_BYTES].hex(" "),
    )


def _is_secret(header: str, declared: AbstractSet[str] | None) -> bool:
    name = header.lower()
    if declared is None:
        return name not in _HARMLESS
    return name in declared or _MAY_BE_SECRET.search(name) is not None


def _as_text(body: bytes) -> str | None:
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    return body[:_TEXT_BYTES].decode("utf-8", "ignore")
