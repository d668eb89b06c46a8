"""The ingest routes, answered before FastAPI sees them: a raw ASGI route carries several times what
a FastAPI and pydantic route does. They stand in the OpenAPI document all the same.

An event's way begins here: read, check, hand over to `ingest.accept`, answer when it is durable.
"""

import random
from collections.abc import Awaitable, Callable

from ackbox.errors import AckboxError
from ackbox.http.batch import BatchRoute
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.guard import authorized, check_origin, refuse_sender, told_to_strangers
from ackbox.http.problems import HttpError
from ackbox.http.refusals import note_refusal
from ackbox.http.requests import (
    Asgi,
    ClientGone,
    Headers,
    Receive,
    Scope,
    Send,
    check_headers,
    check_length,
    local_path,
    read_body,
    read_headers,
    request_id,
)
from ackbox.http.responses import (
    JSON,
    RawResponse,
    accepted_body,
    http_status,
    problem,
    send_response,
)
from ackbox.model import ReceiptKind
from ackbox.runtime import Runtime
from ackbox.telemetry import ResponseSent

Route = Callable[[dict[bytes, bytes], str, Receive, Send], Awaitable[RawResponse | None]]
"""What to answer, or None when it has answered by itself, with 200."""

INGEST_PATHS = frozenset({"/webhooks", "/webhooks/batch"})

_PLAIN: Headers = (JSON,)
_CONFLICT: Headers = (JSON, (b"ackbox-conflict", b"true"))


class FastPath:
    """Answers POST on the ingest routes; everything else goes on to `rest`."""

    def __init__(self, runtime: Runtime, rest: Asgi) -> None:
        self._runtime = runtime
        self._rest = rest
        self._observe = runtime.observe
        self._token = runtime.settings.ingest_token
        self._max_body = runtime.settings.max_body_bytes
        self._envelopes = EnvelopeReader(runtime.clock, random.getrandbits)
        batch = BatchRoute(runtime, self._envelopes)
        self._routes: dict[str, Route] = {"/webhooks": self._post, "/webhooks/batch": batch.post}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            path = local_path(scope)
            if (route := self._routes.get(path)) is not None:
                await self._answer(path, route, scope, receive, send)
                return
        await self._rest(scope, receive, send)

    async def _answer(
        self, path: str, route: Route, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = read_headers(scope)
        made_id = request_id(headers.get(b"x-request-id"), random.getrandbits)
        try:
            given = headers.get(b"authorization")
            if self._token is not None and not authorized(given, self._token):
                raise refuse_sender(given)
            if b"origin" in headers:
                check_origin(scope)
            answer = await route(headers, made_id, receive, send)
        except ClientGone:
            return
        except HttpError as error:
            answer = self._refuse(error, scope, made_id)
        except AckboxError as error:
            answer = self._refuse(told_to_strangers(error, self._runtime), scope, made_id)
        status = 200 if answer is None else await send_response(scope, send, answer, made_id)
        self._observe(ResponseSent(path, status))

    def _refuse(self, error: HttpError, scope: Scope, made_id: str) -> RawResponse:
        note_refusal(self._observe, error.status, str(error), made_id, scope.get("client"))
        return problem(error, made_id)

    async def _post(
        self, headers: dict[bytes, bytes], made_id: str, receive: Receive, _send: Send
    ) -> RawResponse:
        check_headers(headers)
        check_length(headers, self._max_body)
        ingest = self._runtime.ingest
        body = await read_body(receive, self._max_body, ingest.bytes)
        held = len(body)
        try:
            envelope = self._envelopes.read(body, _header_key(headers), made_id)
            del body  # only the payload stays in memory while we wait
            receipt = await ingest.accept(envelope)
        finally:
            ingest.bytes.release(held)
        kind = _CONFLICT if receipt.kind is ReceiptKind.CONFLICT else _PLAIN
        return RawResponse(http_status(receipt), accepted_body(envelope, receipt), kind)


def _header_key(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"idempotency-key")
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise HttpError(400, "The header Idempotency-Key must be UTF-8.") from None
