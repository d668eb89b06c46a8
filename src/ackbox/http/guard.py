"""Access control: `routes.py` says who may call a route, and this module checks it. Tokens are sent
as `Authorization: Bearer`.

- Sender routes need `INGEST_TOKEN` if it is set. The fast path checks it for `POST`. If a signed
  source is declared, they need the token in any case, or `verify = "none"` written out.
- A request to `/in/{source}` is verified by the scheme of that source.
- A page of another origin may send nothing, whatever token it has (S15).
- An operator needs the operator token, wherever the request comes from: a request that looks local
  may come through a proxy (S5).
"""

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from os.path import realpath
from typing import assert_never

from pydantic import SecretStr

from ackbox.app import Sources
from ackbox.config import Settings
from ackbox.errors import AckboxError, Stopped, StoreError
from ackbox.health import Phase
from ackbox.http.problems import HttpError, from_error
from ackbox.http.requests import Scope
from ackbox.http.routes import Access
from ackbox.runtime import Runtime

Verifier = Callable[[dict[bytes, bytes]], None]
"""Raises 401 unless the headers of a request show that its sender may send events."""

CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_READ_METHODS = frozenset({"GET", "HEAD"})
_BEARER = "as `Authorization: Bearer ...`"
_OPERATOR = f"the operator token {_BEARER}: API_TOKEN, or on SQLite the token in DB_PATH.token"
_CLOSED = (
    "There is no operator token, so this route is closed: set ACKBOX_API_TOKEN, restart the "
    f"server, and send it {_BEARER}."
)
_UNAVAILABLE = "The ledger is unavailable; the server's log has the reason. Try again later."
_FOREIGN = "A page of another origin may not send this request: Origin and Host differ."
_SIDE_DOOR = (
    "A signed source is declared, so this route needs INGEST_TOKEN, which is not set: set "
    f'ACKBOX_INGEST_TOKEN and send it {_BEARER}, or write [sources.webhooks] verify = "none" into '
    "ackbox.toml to let anyone send."
)
_ONLY_READS = "READ_TOKEN allows GET on /api and /metrics only"
_READER = f"READ_TOKEN {_BEARER}; there is no operator token, because ACKBOX_API_TOKEN is unset"


def authorized(header: bytes | None, token: SecretStr | None) -> bool:
    """Compare bytes in constant time; never raise, whatever the header holds."""
    if token is None:
        return True
    scheme, _, credentials = (header or b"").partition(b" ")
    expected = token.get_secret_value().encode()
    return compare_digest(credentials.strip(), expected) and scheme.lower() == b"bearer"


def is_operator(scope: Scope, runtime: Runtime) -> bool:
    """Return whether the request carries the operator token."""
    return _carries(_authorization(scope), runtime.operator_token)


def choose_verifier(access: Access, settings: Settings, sources: Sources) -> Verifier | None:
    """Return the verifier of a route on the fast path, or None if anyone may call it."""
    match access:
        case Access.SENDER if settings.ingest_token is not None:
            return partial(_verify_token, settings.ingest_token)
        case Access.SENDER if sources.needs_token:
            return _refuse_all
        case Access.SENDER | Access.SOURCE | Access.OPEN:
            return None
        case Access.LOOKUP | Access.SCRAPER | Access.READER | Access.OPERATOR:
            raise ValueError(f"A route for {access} cannot be on the fast path.")


def _verify_token(token: SecretStr, headers: dict[bytes, bytes]) -> None:
    header = headers.get(b"authorization")
    if not authorized(header, token):
        raise _refuse_sender(header)


def _refuse_all(_: dict[bytes, bytes]) -> None:
    raise HttpError(401, _SIDE_DOOR, CHALLENGE)


def check_access(scope: Scope, access: Access, runtime: Runtime) -> None:
    """Raise 401 or 403 unless the request has this access. The fast path has its own check."""
    if access is Access.OPEN or access is Access.SOURCE:
        return
    reads = scope["method"] in _READ_METHODS
    if not reads:
        check_origin(scope)
    match access:
        case Access.SENDER | Access.LOOKUP:
            check_sender(scope, runtime)
        case Access.SCRAPER if reads and runtime.settings.metrics_access == "open":
            pass
        case Access.SCRAPER | Access.READER:
            check_operator(scope, runtime, readable=reads)
        case Access.OPERATOR:
            check_operator(scope, runtime)
        case _:
            assert_never(access)


def check_sender(scope: Scope, runtime: Runtime) -> None:
    """Check a request that looks up a status. Raise 401 if `INGEST_TOKEN` is set and the request
    carries neither this token nor the operator token. Requests that send events are checked by the
    fast path, which accepts only `INGEST_TOKEN`."""
    header = _authorization(scope)
    token = runtime.settings.ingest_token
    if _carries(header, runtime.operator_token):
        return
    if token is None and runtime.sources.needs_token:
        raise HttpError(401, _SIDE_DOOR, CHALLENGE)
    if not authorized(header, token):
        raise _refuse_sender(header)


def check_operator(scope: Scope, runtime: Runtime, *, readable: bool = False) -> None:
    """Raise 401 or 403 unless the request carries the operator token, or `READ_TOKEN` where that
    is enough."""
    header = _authorization(scope)
    may_read = _carries(header, runtime.settings.read_token)
    if _carries(header, runtime.operator_token) or (readable and may_read):
        return
    if runtime.operator_token is None:
        raise _no_operator_token(header, runtime, readable=readable, may_read=may_read)
    if may_read:
        raise HttpError(403, f"{_ONLY_READS}: send {_OPERATOR}.")
    raise _refusal(header, _OPERATOR)


def check_origin(scope: Scope) -> None:
    """Raise 403 if the Origin header shows that a page of another site sends the request."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
        raise HttpError(403, _FOREIGN)


def redact_error(error: AckboxError, runtime: Runtime) -> HttpError:
    """Return the HTTP error without details that only operators may see (S24)."""
    http_error = from_error(error)
    if http_error.status != 503 or not _may_name_the_store(error, runtime):
        return http_error
    return HttpError(503, _UNAVAILABLE, http_error.headers)


def _refuse_sender(header: bytes | None) -> HttpError:
    return _refusal(header, f"INGEST_TOKEN {_BEARER}")


def _no_operator_token(
    header: bytes | None, runtime: Runtime, *, readable: bool, may_read: bool
) -> HttpError:
    """Return the refusal for a server without an operator token, which must not ask for one. While
    the inbox starts, the token is not known yet."""
    if runtime.phase is Phase.STARTING:
        return from_error(Stopped(f"The inbox is {runtime.phase}."))
    if readable and runtime.settings.read_token is not None:
        return _refusal(header, _READER)
    return HttpError(403, f"{_ONLY_READS}. {_CLOSED}" if may_read else _CLOSED)


def _may_name_the_store(error: AckboxError, runtime: Runtime) -> bool:
    """Return whether the text may contain the ledger's path, or a host, port or user that a driver
    names."""
    is_of_a_driver = error.__cause__ is not None
    ledger = realpath(runtime.settings.db_path)
    return is_of_a_driver or isinstance(error, StoreError) or ledger in str(error)


def _refusal(header: bytes | None, required: str) -> HttpError:
    """Return a 401 that says whether the token is missing or wrong (N15)."""
    scheme, _, credentials = (header or b"").partition(b" ")
    is_missing = scheme.lower() != b"bearer" or not credentials.strip()
    detail = f"Send {required}." if is_missing else f"The token is wrong. Send {required}."
    return HttpError(401, detail, CHALLENGE)


def _carries(header: bytes | None, token: SecretStr | None) -> bool:
    return token is not None and authorized(header, token)


def _authorization(scope: Scope) -> bytes | None:
    """Return the header. Two different values are joined with a comma, so that they match no
    token."""
    values = {value: None for name, value in scope["headers"] if name == b"authorization"}
    return b", ".join(values) if values else None
