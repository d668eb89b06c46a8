"""The whole ASGI app: the fast path in front; the guard and the request id around the rest."""

import random
from http import HTTPStatus
from ipaddress import ip_address

from ackbox.errors import Stopped
from ackbox.http.api import build_api, build_probe_api
from ackbox.http.fast_path import INGEST_PATHS, FastPath
from ackbox.http.guard import OPEN_PATHS, check_access
from ackbox.http.problems import STATUSES, HttpError, from_error
from ackbox.http.refusals import REASON, note_refusal
from ackbox.http.requests import (
    Asgi,
    Message,
    Receive,
    Scope,
    Send,
    check_length,
    check_url,
    choose_request_id,
    limit_body,
    local_path,
)
from ackbox.http.responses import problem, send_response
from ackbox.runtime import Phase, Runtime
from ackbox.telemetry import ResponseSent, RoutesServed

_NOT_STARTED = (
    "The inbox was not started: pass inbox.lifespan to the app it is mounted in, as in "
    "FastAPI(lifespan=inbox.lifespan)."
)
_TRY_AGAIN_LATER = 1013
_ROUTES = frozenset(
    (
        *("/health", "/ready", "/metrics", "/webhooks", "/openapi.json"),
        *("/api/backup", "/api/events", "/api/events/replay", "/api/events/discard"),
        *("/api/stats", "/api/audit"),
    )
)


def build_asgi(runtime: Runtime) -> Asgi:
    runtime.observe(RoutesServed(_ROUTES | INGEST_PATHS | {"other"}, STATUSES))
    return FastPath(runtime, Guarded(runtime, build_api(runtime)))


def build_probes(runtime: Runtime) -> Asgi:
    """Return the app of a process that accepts no events. A sender that posts an event here gets a
    404 that says so, not a 401."""
    runtime.observe(RoutesServed(OPEN_PATHS | {"/metrics", "other"}, STATUSES))
    return Guarded(runtime, build_probe_api(runtime), open_paths=OPEN_PATHS | INGEST_PATHS)


class Mounted:
    """The inbox as an ASGI app that may be mounted before it runs, under any prefix."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._app: Asgi | None = None
        self._is_advertised = False

    def attach(self, runtime: Runtime) -> None:
        self._runtime, self._app = runtime, build_asgi(runtime)
        self._is_advertised = False

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            raise Stopped(_NOT_STARTED)
        return self._runtime

    @property
    def is_running(self) -> bool:
        return self._runtime is not None and self._runtime.phase is not Phase.STOPPED

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
        elif scope["type"] == "http" and self._app is not None:
            self._advertise(scope)
            await self._app(_with_full_path(scope), receive, send)
        elif scope["type"] == "http":
            header = dict(scope["headers"]).get(b"x-request-id")
            request_id = choose_request_id(header, random.getrandbits)
            response = problem(from_error(Stopped(_NOT_STARTED, retry_after=5)), request_id)
            await send_response(scope, send, response, request_id)

    def _advertise(self, scope: Scope) -> None:
        """Record the URL of the surrounding app for commands on this machine; only a request shows
        this URL. Commands send the operator token to it, so its host must be an IP address: a host
        name, as test clients give, may lead anywhere."""
        host, port = scope.get("server") or ("", None)
        if self._is_advertised or port is None or not _is_address(host):
            return
        if self.runtime.phase is Phase.RUNNING:
            self._is_advertised = True
            shown = f"[{host}]" if ":" in host else host
            self.runtime.advertise(f"http://{shown}:{port}{_own_prefix(scope)}")


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _own_prefix(scope: Scope) -> str:
    """Return the prefix under which the inbox is mounted, without the prefix that a proxy in front
    of the whole app has removed."""
    root: str = scope.get("root_path", "")
    return root.removeprefix(scope.get("app_root_path", ""))


def _with_full_path(scope: Scope) -> Scope:
    """Make the path begin with the root path, as ASGI requires. The path lacks it when a proxy
    removes its prefix and the app is configured with that prefix."""
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    if path.startswith(root):
        return scope
    return {**scope, "path": root + path.removeprefix(_own_prefix(scope))}


class Guarded:
    """Checks access, and adds the request id to every response."""

    def __init__(
        self,
        runtime: Runtime,
        api: Asgi,
        *,
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        self._open_paths = open_paths
        self._runtime = runtime
        self._max_body = runtime.settings.max_body_bytes
        self._observe = runtime.observe
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        path = local_path(scope)
        headers = dict(scope["headers"])
        request_id = choose_request_id(headers.get(b"x-request-id"), random.getrandbits)
        try:
            if path not in self._open_paths:
                check_access(scope, path, self._runtime)
            check_url(scope)
            check_length(headers, self._max_body)
        except HttpError as error:
            note_refusal(self._observe, error.status, str(error), request_id, scope.get("client"))
            response = problem(error, request_id)
            self._count(path, await send_response(scope, send, response, request_id))
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
                self._note(scope, path, message["status"], request_id)
            await send(message)

        await self._api(scope, limit_body(receive, self._max_body), send_with_id)

    def _note(self, scope: Scope, path: str, status: int, request_id: str) -> None:
        self._count(path, status)
        reason = scope.get(REASON) or HTTPStatus(status).phrase
        note_refusal(self._observe, status, reason, request_id, scope.get("client"))

    def _count(self, path: str, status: int) -> None:
        self._observe(ResponseSent(path if path in _ROUTES else "other", status))
