"""Who may come in. Tokens travel as `Authorization: Bearer`. Without an API token, reading and
operating is for a loopback peer alone, and only when nothing tells of a proxy in between."""

from hmac import compare_digest
from ipaddress import ip_address

from pydantic import SecretStr

from ackbox.http.problems import HttpError
from ackbox.http.requests import Scope

OPEN_PATHS = frozenset({"/health", "/ready"})
_FORWARDING = frozenset(
    (
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    )
)
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
CHALLENGE = ((b"www-authenticate", b"Bearer"),)


def authorized(header: bytes | None, token: SecretStr | None) -> bool:
    """Compares bytes in constant time; never raises, whatever the header holds."""
    if token is None:
        return True
    scheme, _, given = (header or b"").partition(b" ")
    expected = token.get_secret_value().encode()
    return compare_digest(given.strip(), expected) and scheme.lower() == b"bearer"


def check_operator(scope: Scope, token: SecretStr | None) -> None:
    """Raises 401 unless this request may read and operate."""
    headers = dict(scope["headers"])
    if token is not None:
        if not authorized(headers.get(b"authorization"), token):
            raise HttpError(401, "Send API_TOKEN as `Authorization: Bearer ...`.", CHALLENGE)
    elif not _is_local(scope, headers):
        raise HttpError(
            401,
            "Without API_TOKEN this answers only on the machine itself, by a loopback address and "
            "without a proxy; set API_TOKEN and send it as `Authorization: Bearer ...`.",
            CHALLENGE,
        )


def _is_local(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    client = scope.get("client")
    return (
        client is not None
        and _is_loopback(client[0])
        and _is_loopback(_host_name(headers.get(b"host", b"")))
        and _FORWARDING.isdisjoint(headers)
        and (scope["method"] in _READING or _is_own_origin(headers))
        and not scope.get("root_path")
    )


def _host_name(authority: bytes) -> str:
    """The host of `host`, `host:port` or `[v6]:port`."""
    text = authority.decode("latin-1")
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _is_own_origin(headers: dict[bytes, bytes]) -> bool:
    """A browser names the page that asks; only a page of this very server may write."""
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers[b"host"]


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
