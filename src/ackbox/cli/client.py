"""Talking to the running server over HTTP."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit, urlunsplit

from ackbox.errors import CommandFailed, LedgerInUse

if TYPE_CHECKING:
    import httpx2
    from pydantic import SecretStr

    from ackbox.config import Settings

T = TypeVar("T")

_SECONDS = 10.0
_STEP_SECONDS = 60.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to


def server_url(settings: "Settings", given: str | None = None) -> str:
    """Where to send: as given, else where the holder of the ledger says that it answers, else
    where the settings would have it."""
    from ackbox.app import running_server

    if given is not None:
        return given.rstrip("/").removesuffix("/webhooks")
    holder = running_server(settings)
    if holder is not None and holder.url is not None:
        return reachable(holder.url)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return reachable(f"http://{host}:{settings.port}")


def ask_holder(
    settings: "Settings", in_use: LedgerInUse, ask: "Callable[[httpx2.Client, str], T]"
) -> T:
    """What the server that has the ledger answers; raises `in_use` if the holder is none. The
    operator token goes to the address in the lock file, which only the holder writes."""
    import httpx2

    from ackbox.app import find_operator_token, running_server

    holder = running_server(settings)
    if holder is None or holder.url is None:
        raise in_use
    url = reachable(holder.url)
    try:
        with open_client(find_operator_token(settings), timeout=_STEP_SECONDS) as client:
            client.headers["ackbox-actor"] = actor()
            return ask(client, url)
    except httpx2.RequestError as error:
        raise explain(error, url) from None


def actor() -> str:
    """As the audit names whoever runs a command."""
    from getpass import getuser

    try:
        return f"cli {getuser()}"
    except (OSError, KeyError):  # a user id without a name, as containers have
        return "cli"


def reachable(url: str) -> str:
    """A server that listens on every address is asked by the loopback one."""
    parts = urlsplit(url)
    host = _WILDCARDS.get(parts.hostname or "")
    if host is None:
        return url
    shown = f"[{host}]" if ":" in host else host
    return urlunsplit(parts._replace(netloc=f"{shown}:{parts.port}"))


def open_client(token: "SecretStr | None", *, timeout: float = _SECONDS) -> "httpx2.Client":
    """Straight to the server: no proxy of the environment stands between, no redirect is followed
    with a token in hand."""
    import httpx2

    headers = {"user-agent": "ackbox"}
    if token is not None:
        headers["authorization"] = f"Bearer {token.get_secret_value()}"
    return httpx2.Client(headers=headers, timeout=timeout, trust_env=False)


def explain(error: "httpx2.RequestError | httpx2.InvalidURL", url: str) -> CommandFailed:
    """What went wrong on the way, in one line."""
    import httpx2

    match error:
        case httpx2.ConnectError():
            return CommandFailed(
                f"Nothing answers at {url}. Start the server with `ackbox serve`, or name another "
                "with --url."
            )
        case httpx2.TimeoutException():
            return CommandFailed(
                f"{url} did not answer in time. Its log says what it is doing; `ackbox doctor` "
                "looks at it from outside."
            )
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return CommandFailed(
                f"{url} is no address of a server; write it as http://127.0.0.1:8000."
            )
        case _:
            return CommandFailed(f"{url} broke off: {str(error) or type(error).__name__}.")


def problem_of(response: "httpx2.Response") -> str:
    """The detail of a problem document, or what else there is to say."""
    try:
        detail = response.json()["detail"]
    except (ValueError, TypeError, KeyError):
        detail = "That is no answer of an ackbox server."
    return f"{response.url} answered {response.status_code} {response.reason_phrase}: {detail}"
