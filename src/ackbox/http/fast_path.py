"""Serve the ingest routes in front of FastAPI: a raw ASGI route has several times the throughput of
a FastAPI and pydantic route. The OpenAPI document describes these routes all the same.

An event's path begins here: read the request, check it, submit the envelope to ingest, and
respond when the event is durable.
"""

import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ackbox.byte_buffer import Reservation
from ackbox.errors import AckboxError, InvalidEvent
from ackbox.http.batch import BatchRoute
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.guard import Verifier, check_origin, choose_verifier, redact_error
from ackbox.http.inbound import SourceRoute
from ackbox.http.known_senders import name_sender
from ackbox.http.problems import HttpError
from ackbox.http.refusals import note_refusal
from ackbox.http.requests import (
    Asgi,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    check_headers,
    choose_request_id,
    local_path,
    read_body,
    read_headers,
)
from ackbox.http.responses import (
    RawResponse,
    accepted,
    problem,
    send_response,
)
from ackbox.http.routes import Route
from ackbox.model import Submission
from ackbox.runtime import Runtime
from ackbox.telemetry import ResponseSent

Respond = Callable[[Scope, dict[bytes, bytes], str, Receive, Send], Awaitable[RawResponse | None]]
"""Returns the response to send, or None when the function itself has sent one with status 200."""


class FastRoute(NamedTuple):
    metric: str
    verify: Verifier | None
    respond: Respond


class FastPath:
    """Serves the ingest routes and passes every other request to `rest`."""

    def __init__(self, runtime: Runtime, rest: Asgi) -> None:
        self._runtime = runtime
        self._rest = rest
        self._observe = runtime.observe
        self._max_body = runtime.settings.max_body_bytes
        self._envelopes = EnvelopeReader(runtime.clock, random.getrandbits)
        batch = BatchRoute(runtime, self._envelopes)
        self._routes: dict[str, dict[str, FastRoute]] = {}
        self._add(Route.POST_EVENT, Route.POST_EVENT.path, self._post)
        self._add(Route.POST_BATCH, Route.POST_BATCH.path, batch.post)
        for name, webhook in runtime.sources.webhooks.items():
            receive = SourceRoute(runtime, webhook).receive
            self._add(Route.DELIVER, Route.DELIVER.url("", source=name), receive)
            self._add(Route.HANDSHAKE, Route.HANDSHAKE.url("", source=name), receive)

    def _add(self, route: Route, path: str, respond: Respond) -> None:
        verify = choose_verifier(route.access, self._runtime.settings, self._runtime.sources)
        paths = self._routes.setdefault(route.method, {})
        paths[path] = FastRoute(route.metric, verify, respond)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (paths := self._routes.get(scope["method"])) is None:
            await self._rest(scope, receive, send)
            return
        path = local_path(scope) if scope.get("root_path") else scope["path"]
        if (route := paths.get(path)) is None:
            await self._rest(scope, receive, send)
            return
        metric, verify, respond = route
        headers = read_headers(scope)
        request_id = choose_request_id(headers.get(b"x-request-id"), random.getrandbits)
        try:
            if verify is not None:
                verify(headers)
            if b"origin" in headers:
                check_origin(scope)
            response = await respond(scope, headers, request_id, receive, send)
        except ClientDisconnected:
            return
        except HttpError as error:
            response = self._refuse(error, scope, request_id)
        except AckboxError as error:
            response = self._refuse(redact_error(error, self._runtime), scope, request_id)
        status = 200 if response is None else await send_response(scope, send, response, request_id)
        self._observe(ResponseSent(metric, status))

    def _refuse(self, error: HttpError, scope: Scope, request_id: str) -> RawResponse:
        note_refusal(self._observe, error.status, str(error), request_id, scope.get("client"))
        return problem(error, request_id)

    async def _post(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        request_id: str,
        receive: Receive,
        _send: Send,
    ) -> RawResponse:
        check_headers(headers, self._max_body)
        ingest = self._runtime.ingest
        with Reservation(ingest.bytes) as reservation:
            body = await read_body(receive, self._max_body, reservation)
            try:
                envelope = self._envelopes.read(body, headers.get(b"idempotency-key"), request_id)
            except InvalidEvent as error:
                raise name_sender(error, scope, body) from None
            del body  # only the payload stays in memory during the wait
            (receipt,) = await ingest.submit(Submission((envelope,)))
        return accepted(envelope, receipt)
