"""The HTTP client by which commands talk to the running server."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit, urlunsplit

from ackbox.errors import CommandFailed, LedgerInUse
from ackbox.http.routes import Route

if TYPE_CHECKING:
    import httpx2
    from pydantic import SecretStr

    from ackbox.config import Settings

T = TypeVar("T")

_SECONDS = 10.0
_STEP_SECONDS = 60.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to


def server_url(settings: "Settings", given: str | None = None) -> str:
    """Return the address of the server: the given address, or the address in the lock file of the
    ledger, or the address that the settings name."""
    if given is not None:
        return given.rstrip("/").removesuffix(Route.POST_EVENT.path)
    if (url := find_server(settings)) is not None:
        return url
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return reachable(f"http://{host}:{settings.port}")


def find_server(settings: "Settings") -> str | None:
    """Return the address of the server that holds the ledger. Return None if no server holds it, or
    if it is on PostgreSQL, where several may use it."""
    from ackbox.app import Shared, choose_admin

    holder = choose_admin(settings).holder()
    if holder is None or isinstance(holder, Shared) or holder.url is None:
        return None
    return reachable(holder.url)


def call_server(
    settings: "Settings", in_use: LedgerInUse, call: "Callable[[httpx2.Client, str], T]"
) -> T:
    """Call the server that holds the ledger. Raises `in_use` if the holder is not a server. The
    operator token is sent to the address in the lock file, which only the holder writes."""
    import httpx2

    from ackbox.app import find_operator_token

    if (url := find_server(settings)) is None:
        raise in_use
    try:
        with open_client(find_operator_token(settings), timeout=_STEP_SECONDS) as client:
            client.headers["ackbox-actor"] = actor()
            return call(client, url)
    except httpx2.RequestError as error:
        raise explain(error, url) from None


def actor() -> str:
    """Return the name under which the audit records the user of a command."""
    from getpass import getuser

    try:
        return f"cli {getuser()}"
    except (OSError, KeyError):  # a user id without a name, as in many containers
        return "cli"


def reachable(url: str) -> str:
    """Replace a wildcard address, on which a server may listen, with the loopback address."""
    parts = urlsplit(url)
    host = _WILDCARDS.get(parts.hostname or "")
    if host is None:
        return url
    shown = f"[{host}]" if ":" in host else host
    return urlunsplit(parts._replace(netloc=f"{shown}:{parts.port}"))


def open_client(token: "SecretStr | None", *, timeout: float = _SECONDS) -> "httpx2.Client":
    """Return a client that ignores proxies of the environment and follows no redirect, so that the
    token reaches only the server."""
    import httpx2

    headers = {"user-agent": "ackbox"}
    if token is not None:
        headers["authorization"] = f"Bearer {token.get_secret_value()}"
    return httpx2.Client(headers=headers, timeout=timeout, trust_env=False)


def explain(error: "httpx2.RequestError | httpx2.InvalidURL", url: str) -> CommandFailed:
    """Return an error that says in one line why the request failed."""
    import httpx2

    match error:
        case httpx2.ConnectError():
            return CommandFailed(
                f"No server responds at {url}. Start the server with `ackbox serve`, or name "
                "another server with --url."
            )
        case httpx2.TimeoutException():
            return CommandFailed(
                f"The server at {url} did not respond in time. Read its log, or run `ackbox "
                "doctor`."
            )
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return CommandFailed(
                f"{url} is not the address of a server. Write it like http://127.0.0.1:8000."
            )
        case _:
            reason = str(error) or type(error).__name__
            return CommandFailed(f"The connection to {url} failed: {reason}.")


def describe_problem(response: "httpx2.Response") -> str:
    """Return the status and the detail of a problem document in one line."""
    try:
        detail = response.json()["detail"]
    except (ValueError, TypeError, KeyError):
        detail = "This is not a response of an ackbox server."
    status = f"{response.status_code} {response.reason_phrase}"
    return f"{response.url} responded with {status}: {detail}"
