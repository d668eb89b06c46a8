"""Who may come in. Tokens travel as `Authorization: Bearer`. Without an API token, reading and
operating is for a loopback peer alone, and only when nothing tells of a proxy in between."""

import re
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address

from pydantic import SecretStr

from ackbox.http.problems import HttpError
from ackbox.http.requests import Scope

OPERATOR = "ackbox.operator"
"""In the scope of an open route: whether an operator asks."""
OPEN_PATHS = frozenset({"/health", "/ready"})
_FORWARDING = re.compile(rb"forwarded|via|x-forwarded.*|x-real-ip|(x|true)-client-ip|x-original-.*")
_AUTHORITY = re.compile(rb"(\[(?P<v6>[\da-fA-F:.]+)\]|(?P<name>[\w.-]+))(:\d*)?", re.ASCII)
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_MOUNTED = (
    "An inbox inside another app answers this only with a token: set API_TOKEN and send it as "
    "`Authorization: Bearer ...`."
)
CHALLENGE = ((b"www-authenticate", b"Bearer"),)


def authorized(header: bytes | None, token: SecretStr | None) -> bool:
    """Compares bytes in constant time; never raises, whatever the header holds."""
    if token is None:
        return True
    scheme, _, given = (header or b"").partition(b" ")
    expected = token.get_secret_value().encode()
    return compare_digest(given.strip(), expected) and scheme.lower() == b"bearer"


def check_operator(scope: Scope, token: SecretStr | None, *, mounted: bool = False) -> None:
    """Raises 401 unless this request may read and operate. Whatever stands before a mounted inbox
    decides who looks local, so there is no way in without a token."""
    headers = _headers_once(scope)
    if token is not None:
        if not authorized(headers.get(b"authorization"), token):
            raise HttpError(401, "Send API_TOKEN as `Authorization: Bearer ...`.", CHALLENGE)
    elif mounted:
        raise HttpError(401, _MOUNTED, CHALLENGE)
    elif not _is_local(scope, headers):
        raise HttpError(
            401,
            "Without API_TOKEN this answers only on the machine itself, by a loopback address and "
            "without a proxy; set API_TOKEN and send it as `Authorization: Bearer ...`.",
            CHALLENGE,
        )


def is_operator(scope: Scope, token: SecretStr | None, *, mounted: bool = False) -> bool:
    """Whether this request may see what only operators may, on a route that is open to all."""
    try:
        check_operator(scope, token, mounted=mounted)
    except HttpError:
        return False
    return True


def _headers_once(scope: Scope) -> dict[bytes, bytes]:
    """Of one that stands twice with two values, both, which is neither a token nor a host."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if found.setdefault(name, value) != value:
            found[name] += b", " + value
    return found


def _is_local(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    client = scope.get("client")
    return (
        client is not None
        and _is_loopback(client[0])
        and _is_loopback(_host_name(headers.get(b"host", b"")))
        and not any(map(_FORWARDING.fullmatch, headers))
        and (scope["method"] in _READING or _is_own_origin(headers))
        and not scope.get("root_path")
    )


def _host_name(authority: bytes) -> str:
    """The host of `host`, `host:port`, `[v6]` or `[v6]:port`; of anything else nothing."""
    found = _AUTHORITY.fullmatch(authority)
    return (found["v6"] or found["name"]).decode() if found else ""


def _is_own_origin(headers: dict[bytes, bytes]) -> bool:
    """A browser names the page that asks; only a page of this very server may write."""
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers[b"host"]


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
