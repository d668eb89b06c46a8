"""All routes except the fast path, on FastAPI: event status, health, metrics, operations."""

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
from ackbox.http.openapi import NO_CONTROL_CHARACTERS, add_ingest_routes, problem_responses
from ackbox.http.problems import HttpError, from_error, problem_body
from ackbox.http.refusals import REASON
from ackbox.http.requests import local_path
from ackbox.model import NAME_LIMIT, EventId, EventRecord, check_name, to_text
from ackbox.runtime import Runtime

_ALLOWED = {
    "/webhooks": b"GET, POST",
    "/webhooks/batch": b"POST",
    "/api/events/replay": b"POST",
    "/api/events/discard": b"POST",
}
"""The methods of paths for which FastAPI would list wrong methods, because it does not know the
fast path or mistakes a name for an id."""
_NO_ROUTE = "There is no route at this path."
_WORKER_ONLY = (
    "This instance processes events and accepts none: it serves /health, /ready and /metrics. Send "
    "and look up events where `ackbox serve` runs."
)
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


class ServiceHealth(BaseModel):
    """A background loop of the process, and how often in a row it has failed."""

    name: str
    state: str
    failures: int
    error: str | None = None
    since: str


class HealthResponse(BaseModel):
    status: str
    durability: str
    services: list[ServiceHealth] | None = None


class ReadyResponse(BaseModel):
    ready: bool


def build_api(runtime: Runtime) -> FastAPI:
    api = FastAPI(
        title="ackbox",
        version=__version__,
        description="A durable inbox for webhooks and events.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problem_responses(401, 403),
    )
    _add_webhooks(api, runtime)
    _add_operations(api, runtime)
    add_backup_route(api, runtime)
    add_event_routes(api, runtime)
    _add_error_responses(api, runtime)
    add_ingest_routes(api, runtime.settings)
    return api


def build_probe_api(runtime: Runtime) -> FastAPI:
    """Return the routes of a process that accepts no events."""
    api = FastAPI(openapi_url=None, redirect_slashes=False)
    _add_operations(api, runtime)
    _add_error_responses(api, runtime, not_found=_WORKER_ONLY)
    return api


def _add_webhooks(api: FastAPI, runtime: Runtime) -> None:
    @api.get("/webhooks/batch", include_in_schema=False)
    async def refuse_get_batch() -> None:
        """Respond 405 here: otherwise `batch` would be taken for the id of an event."""
        raise HTTPException(405)

    @api.get("/webhooks/{event_id}", responses=problem_responses(400, 404, 503), tags=["webhooks"])
    async def event_by_id(event_id: UUID) -> EventStatus:
        """Return the status of an event, by the id from its acknowledgement."""
        event = await runtime.reader.event(EventId(str(event_id)))
        return _status_or_404(event if event and event.source == SOURCE else None)

    @api.get("/webhooks", responses=problem_responses(400, 404, 503), tags=["webhooks"])
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
        return _status_or_404(await runtime.reader.event_by_key(source or SOURCE, key))


def _add_operations(api: FastAPI, runtime: Runtime) -> None:
    @api.get("/health", response_model_exclude_none=True, tags=["operations"])
    async def health(request: Request) -> HealthResponse:
        """Report that the process is alive. `critical`: for a minute, events could not be stored or
        a background loop has kept failing. An operator also gets the services."""
        current = runtime.health()
        services = _services(runtime) if is_operator(request.scope, runtime) else None
        return HealthResponse(
            status=current.status, durability=current.durability, services=services
        )

    @api.get("/ready", responses=problem_responses(503), tags=["operations"])
    async def ready(request: Request) -> ReadyResponse:
        """Report whether the server accepts events. If not, an operator gets the details, and any
        other caller a general reason."""
        if (unready := runtime.why_not_ready()) is not None:
            by_operator = is_operator(request.scope, runtime)
            detail = unready.detail if by_operator else unready.reason
            raise HttpError(503, detail, ((b"retry-after", b"1"),))
        return ReadyResponse(ready=True)

    @api.get("/metrics", response_class=Response, tags=["operations"])
    async def metrics() -> Response:
        """Return the metrics in the Prometheus text format."""
        body, content_type = runtime.metrics()
        return Response(body, media_type=content_type)


def _add_error_responses(api: FastAPI, runtime: Runtime, *, not_found: str = _NO_ROUTE) -> None:
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
        path = local_path(request.scope)
        detail = str(error.detail)
        if error.status_code == 404:
            detail = not_found
        elif error.status_code == 405:
            headers[b"allow"] = _ALLOWED.get(path, headers.get(b"allow", b""))
            detail = f"This path accepts {headers[b'allow'].decode()} only."
        request.scope[REASON] = detail
        return _problem(error.status_code, detail, headers)

    @api.exception_handler(RequestValidationError)
    async def on_bad_request(request: Request, error: RequestValidationError) -> Response:
        flaw = error.errors()[0]
        request.scope[REASON] = f"The {flaw['loc'][0]} is not valid: {flaw['type']}."
        return _problem(400, _describe_first_flaw(error))

    @api.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> Response:
        runtime.logger.error("request failed", error=type(error).__name__)
        return _problem(500, "The server failed on this request; its log has the error.")


def _services(runtime: Runtime) -> list[ServiceHealth]:
    return [
        ServiceHealth(
            name=service.name,
            state=service.state,
            failures=service.failures,
            error=service.error,
            since=to_text(service.since),
        )
        for service in runtime.services.statuses
    ]


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
