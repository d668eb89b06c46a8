"""The routes on FastAPI: all except the fast path and the probes. This module is imported when the
first request needs it."""

from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ackbox import __version__
from ackbox.errors import AckboxError
from ackbox.http.backups import add_backup_route
from ackbox.http.envelopes import SOURCE
from ackbox.http.events import add_event_routes
from ackbox.http.guard import check_operator, is_operator, redact_error
from ackbox.http.openapi import NO_CONTROL_CHARACTERS, add, add_openapi_route, problem_responses
from ackbox.http.problems import HttpError, from_error, problem_body
from ackbox.http.quarantine import add_quarantine_routes
from ackbox.http.refusals import REASON
from ackbox.http.requests import Asgi, Message, Receive, Scope, Send, too_large
from ackbox.http.routes import Route
from ackbox.model import NAME_LIMIT, EventId, EventKey, EventRecord, check_name, to_text
from ackbox.runtime import Runtime

_SHORT = Query(
    min_length=1,
    max_length=NAME_LIMIT,
    json_schema_extra={"pattern": NO_CONTROL_CHARACTERS},  # documented; `check_name` enforces it
)


class EventStatus(BaseModel):
    """The status and times of an event (W13)."""

    id: UUID
    idempotency_key: str
    status: str
    created_at: str
    updated_at: str


def build_api(runtime: Runtime) -> Asgi:
    api = make_fastapi(runtime)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await api(scope, _limit_body(receive, runtime.settings.max_body_bytes), send)

    return serve


def make_fastapi(runtime: Runtime) -> FastAPI:
    api = FastAPI(
        title="ackbox",
        version=__version__,
        description="A durable inbox for webhooks and events.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problem_responses(401, 403),
    )
    _add_webhooks(api, runtime)
    add_backup_route(api, runtime)
    add_event_routes(api, runtime)
    add_quarantine_routes(api, runtime)
    _add_error_responses(api, runtime)
    add_openapi_route(api, runtime.settings)
    return api


def _limit_body(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises 413 past `limit` bytes, because FastAPI reads bodies of any
    size. It raises Starlette's exception, because FastAPI turns any other exception into a 400."""
    size = 0

    async def receive_within_limit() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, str(too_large(limit)))
        return message

    return receive_within_limit


def _add_webhooks(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.EVENT_BY_ID, responses=problem_responses(400, 404, 503), tags=["webhooks"])
    async def event_by_id(event_id: UUID) -> EventStatus:
        """Return the status of an event, by the id from its acknowledgement."""
        event = await runtime.reader.event(EventId(str(event_id)))
        return _status_or_404(event if event and event.source == SOURCE else None)

    @add(api, Route.EVENT_BY_KEY, responses=problem_responses(400, 404, 503), tags=["webhooks"])
    async def event_by_key(
        request: Request,
        idempotency_key: Annotated[str, _SHORT],
        source: Annotated[str | None, _SHORT] = None,
    ) -> EventStatus:
        """Return the status of an event, by its idempotency key. Only operators may give a
        source."""
        if source is not None:
            check_operator(request.scope, runtime)
            check_name("source", source)
        key = check_name("idempotency_key", idempotency_key)
        return _status_or_404(await runtime.reader.event(EventKey(source or SOURCE, key)))


def _add_error_responses(api: FastAPI, runtime: Runtime) -> None:
    @api.exception_handler(HttpError)
    async def on_http_error(request: Request, error: HttpError) -> Response:
        request.scope[REASON] = str(error)
        return _problem(error.status, str(error), dict(error.headers))

    @api.exception_handler(AckboxError)
    async def on_our_error(request: Request, error: AckboxError) -> Response:
        by_operator = is_operator(request.scope, runtime)
        http_error = from_error(error) if by_operator else redact_error(error, runtime)
        return await on_http_error(request, http_error)

    @api.exception_handler(HTTPException)
    async def on_framework_error(request: Request, error: HTTPException) -> Response:
        headers = {k.lower().encode(): v.encode() for k, v in (error.headers or {}).items()}
        request.scope[REASON] = str(error.detail)
        return _problem(error.status_code, str(error.detail), headers)

    @api.exception_handler(RequestValidationError)
    async def on_bad_request(request: Request, error: RequestValidationError) -> Response:
        flaw = error.errors()[0]
        request.scope[REASON] = f"The {flaw['loc'][0]} is not valid: {flaw['type']}."
        return _problem(400, _describe_first_flaw(error))

    @api.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> Response:
        runtime.logger.error("request failed", error=type(error).__name__)
        return _problem(500, "The server failed on this request; its log has the error.")


def _status_or_404(event: EventRecord | None) -> EventStatus:
    if event is None:
        raise HttpError(404, "No such event.")
    return EventStatus(
        id=UUID(event.id),
        idempotency_key=event.idempotency_key,
        status=event.status,
        created_at=to_text(event.created_at),
        updated_at=to_text(event.updated_at),
    )


_FLAWS = {
    "string_pattern_mismatch": "the format is wrong; a cursor is the `next` of the last page",
    "model_attributes_type": "a JSON object is expected, sent with Content-Type: application/json",
}


def _describe_first_flaw(error: RequestValidationError) -> str:
    """Describe the first invalid value without repeating it."""
    flaw = error.errors()[0]
    where = ".".join(part for part in flaw["loc"][1:] if isinstance(part, str)) or "the body"
    return f"{where}: {_FLAWS.get(flaw['type']) or flaw['msg'].removeprefix('Value error, ')}"


def _problem(status: int, detail: str, headers: dict[bytes, bytes] | None = None) -> Response:
    text = {name.decode(): value.decode() for name, value in (headers or {}).items()}
    body = problem_body(status, detail)
    return Response(body, status, headers=text, media_type="application/problem+json")
