"""The whole ASGI app: the fast path in front; the guard and the request id around the rest.

FastAPI takes longer to import than the rest of a server, so it is loaded on the first request that
needs it. Requests that post events, and probes, do not need it.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from threading import Lock

from ackbox.errors import Stopped
from ackbox.health import Phase
from ackbox.http.fast_path import FastPath
from ackbox.http.guard import check_access
from ackbox.http.probes import PROBES, Probes
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
    local_path,
)
from ackbox.http.responses import NOSNIFF, RawResponse, problem, send_response
from ackbox.http.routes import OTHER, Access, Route, choose_access, find_routes
from ackbox.runtime import Runtime
from ackbox.telemetry import ResponseSent, RoutesServed

_NOT_STARTED = (
    "The inbox was not started: pass inbox.lifespan to the app it is mounted in, as in "
    "FastAPI(lifespan=inbox.lifespan)."
)
_TRY_AGAIN_LATER = 1013
_NO_ROUTE = "There is no route at this path."
_NO_SOURCE = (
    "There is no source of this name here: declare it as [sources.NAME] in ackbox.toml or with "
    "inbox.source, and restart the server."
)
_WORKER_ONLY = (
    "This instance processes events and accepts none: it serves "
    f"{Route.HEALTH.path}, {Route.READY.path} and {Route.METRICS.path}. Send and look up events "
    "where `ackbox serve` runs."
)


def build_asgi(runtime: Runtime) -> Asgi:
    api = Probes(runtime, LazyApi(partial(_load_api, runtime)))
    return FastPath(runtime, Guarded(runtime, api, tuple(Route), not_found=_NO_ROUTE))


def build_probes(runtime: Runtime) -> Asgi:
    """Return the app of a process that accepts no events. A sender that posts an event here gets a
    404 that says that events are not accepted, not a 401."""
    api = Probes(runtime, LazyApi(partial(_load_api, runtime)))
    return Guarded(runtime, api, PROBES, not_found=_WORKER_ONLY)


class LazyApi:
    """An app that is loaded in a thread, once, by the first request for it."""

    def __init__(self, load: Callable[[], Asgi]) -> None:
        self._load = load
        self._lock = Lock()
        self._api: Asgi | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (api := self._api) is None:
            api = await asyncio.to_thread(self._load_once)
        await api(scope, receive, send)

    def _load_once(self) -> Asgi:
        with self._lock:
            self._api = self._api or self._load()
            return self._api


def _load_api(runtime: Runtime) -> Asgi:
    from ackbox.http.api import build_api

    return build_api(runtime)


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
    """Checks path, method and access, and adds the request id to every response."""

    def __init__(
        self, runtime: Runtime, api: Asgi, served: Collection[Route], *, not_found: str
    ) -> None:
        runtime.observe(RoutesServed({route.metric for route in served} | {OTHER}, STATUSES))
        self._served = frozenset(served)
        self._not_found = not_found
        self._runtime = runtime
        self._max_body = runtime.settings.max_body_bytes
        self._observe = runtime.observe
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = local_path(scope)
        routes = find_routes(path)
        metric = self._metric(routes)
        headers = dict(scope["headers"])
        request_id = choose_request_id(headers.get(b"x-request-id"), random.getrandbits)
        try:
            self._check(scope, path, routes)
            check_url(scope)
            check_length(headers, self._max_body)
            self._check_route(routes, scope["method"])
        except HttpError as error:
            status, body, sent = problem(error, request_id)
            await send_response(
                scope, send, RawResponse(status, body, (*sent, NOSNIFF)), request_id
            )
            self._note(scope, metric, status, request_id, str(error))
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    NOSNIFF,
                ]
                status = message["status"]
                reason = scope.get(REASON) or HTTPStatus(status).phrase
                self._note(scope, metric, status, request_id, reason)
            await send(message)

        await self._api(scope, receive, send_with_id)

    def _metric(self, routes: Mapping[str, Route]) -> str:
        return next((route.metric for route in routes.values() if route in self._served), OTHER)

    def _check(self, scope: Scope, path: str, routes: Mapping[str, Route]) -> None:
        """Check access. A sender route that is not served here is open: its sender must learn that
        it has reached the wrong process."""
        is_elsewhere = bool(routes) and not self._served.intersection(routes.values())
        access = choose_access(routes, scope["method"], path)
        if not (is_elsewhere and access in {Access.SENDER, Access.SOURCE, Access.LOOKUP}):
            check_access(scope, access, self._runtime)

    def _check_route(self, routes: Mapping[str, Route], method: str) -> None:
        """Raise 404 or 405 unless the path and the method are those of a route."""
        served = [route.method for route in routes.values() if route in self._served]
        if not served:
            raise HttpError(404, self._not_found)
        if method not in served:
            allowed = ", ".join(sorted(served))
            headers = ((b"allow", allowed.encode()),)
            raise HttpError(405, f"This path accepts {allowed} only.", headers)
        if routes[method].access is Access.SOURCE:  # the fast path serves every declared source
            raise HttpError(404, _NO_SOURCE)

    def _note(self, scope: Scope, metric: str, status: int, request_id: str, reason: str) -> None:
        self._observe(ResponseSent(metric, status))
        note_refusal(self._observe, status, reason, request_id, scope.get("client"))
