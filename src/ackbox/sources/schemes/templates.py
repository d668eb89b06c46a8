"""The bytes that a signature covers, as a template such as `v0:{timestamp}:{body}`."""

import re
from collections.abc import Callable

from ackbox.errors import SettingError
from ackbox.model import InboundRequest
from ackbox.sources.schemes.signatures import to_bytes

Part = Callable[[InboundRequest], bytes | None]
"""Return the bytes of one part of a template, or None if the request does not have them."""

_PLACEHOLDER = re.compile(r"(\{[^{}]*\})")


class Template:
    """The signed bytes of a request, made of literals and of parts of the request."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts

    def render(self, request: InboundRequest) -> bytes | None:
        """Return the signed bytes, or None if a header that is signed is absent or repeated."""
        pieces = []
        for part in self._parts:
            if (piece := part(request)) is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)


def parse_template(
    text: str, timestamp: str | None = None, public_url: str | None = None
) -> Template:
    """Return the template of a text. `timestamp` is the name of the header with the time.
    `public_url` is the URL that the sender calls: with the query of the request, it is `{url}`."""
    placeholders: dict[str, Part] = {"{body}": _body, "{method}": _method}
    if timestamp:
        placeholders["{timestamp}"] = _header(timestamp)
    if public_url:
        placeholders["{url}"] = _url(public_url)
    if "{body}" not in text:
        raise SettingError("signed must contain {body}, or the body would not be protected")
    pieces = (piece for piece in _PLACEHOLDER.split(text) if piece)
    return Template(tuple(_parse(piece, placeholders) for piece in pieces))


def _parse(piece: str, placeholders: dict[str, Part]) -> Part:
    if part := placeholders.get(piece):
        return part
    if named := re.fullmatch(r"\{header:([^{}: ]+)\}", piece):
        return _header(named[1].lower())
    if _PLACEHOLDER.fullmatch(piece):
        raise SettingError(
            f"signed must not contain {piece}; it may contain {{body}}, {{method}},"
            " {header:NAME}, {timestamp} if timestamp is set, and {url} if public_url is set"
        )
    return _literal(piece.encode())


def _literal(text: bytes) -> Part:
    return lambda _: text


def _body(request: InboundRequest) -> bytes:
    return request.body


def _method(request: InboundRequest) -> bytes:
    return to_bytes(request.method)


def _header(name: str) -> Part:
    def value(request: InboundRequest) -> bytes | None:
        values = request.headers_named(name)
        return to_bytes(values[0]) if len(values) == 1 else None

    return value


def _url(public_url: str) -> Part:
    def value(request: InboundRequest) -> bytes:
        _, mark, query = request.url.partition("?")
        return to_bytes(public_url + mark + query)

    return value
