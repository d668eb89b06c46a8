"""Check the parts of a request's head that the parser does not check: target, `Host` and
`Transfer-Encoding`, by the rules of RFC 9112."""

import re
from ipaddress import AddressValueError, IPv6Address

_WHITE_SPACE = b" \t"
_HOST = re.compile(
    rb"(?:\[(?P<v6>[\da-fA-F:.]+)\]|(?:[\w.~!$&'()*+,;=-]|%[\da-fA-F]{2})*)(?::(?P<port>\d{0,5}))?",
    re.ASCII,
)
_ABSOLUTE_FORM = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)
_LAST_PORT = 65535


class Refusal(Exception):
    """The request cannot be passed to the app. Carries the status and the reason as text."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def check_host(value: bytes) -> None:
    """Raise unless the value is a host with an optional port; it may be empty (RFC 9110, 7.2)."""
    host = _HOST.fullmatch(value.strip(_WHITE_SPACE))
    if host is None or int(host["port"] or 0) > _LAST_PORT or not _is_address(host["v6"]):
        raise Refusal(400, "The header Host must be one host, with or without a port.")


def check_transfer_encoding(value: bytes, version: str) -> None:
    """Raise unless `chunked` is the only coding. Several header lines count as one list."""
    if version == "1.0":
        raise Refusal(400, "HTTP/1.0 has no Transfer-Encoding: send Content-Length.")
    codings = [coding.strip(_WHITE_SPACE).lower() for coding in value.split(b",")]
    *others, last = codings
    if last != b"chunked" or last in others or not all(others):
        raise Refusal(400, "Transfer-Encoding must be chunked, once.")
    if others:
        raise Refusal(501, "Transfer-Encoding must be chunked alone: no other is supported.")


def split_target(target: bytes, method: bytes) -> tuple[bytes | None, bytes]:
    """Return the host that a target names, if any, and the target in origin form.

    `*` is returned unchanged. The absolute form needs a host, not a path (RFC 9110, 4.2.1).
    """
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return None, target
    url = _ABSOLUTE_FORM.fullmatch(target)
    if url is None:
        raise Refusal(400, "The request target must be a path, or an http or https URL.")
    check_host(url[1])
    return url[1], url[2] if url[2].startswith(b"/") else b"/" + url[2]


def _is_address(v6: bytes | None) -> bool:
    """Return whether the part in brackets, if any, is an IPv6 address."""
    if v6 is not None:
        try:
            IPv6Address(v6.decode())
        except AddressValueError:
            return False
    return True
