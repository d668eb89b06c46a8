"""The OpenAPI document: FastAPI's own, plus the routes that bypass FastAPI."""

from collections.abc import Callable
from functools import cache, partial
from inspect import getdoc
from typing import Any, Literal, TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ackbox.config import Settings
from ackbox.http.event_responses import ErrorLine, PreviewResponse, ProgressLine
from ackbox.http.ndjson import ndjson_content
from ackbox.http.probes import HealthResponse, Probes, ReadyResponse
from ackbox.http.quarantine_responses import DropLine, ReleaseLine
from ackbox.http.routes import Access, Route
from ackbox.model import NAME_LIMIT

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

NO_CONTROL_CHARACTERS = r"^[^\u0000-\u001f\u007f-\u009f]*$"
TYPE_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f*]*\*?$"
_NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_LIMIT,
    "pattern": NO_CONTROL_CHARACTERS,
}
_KEY_HEADER = {**_NAME, "pattern": r"^[!-~]([ -~]*[!-~])?$"}
_PROBLEM_CONTENT = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
}

_SCHEMAS: dict[str, Any] = {
    "Problem": {
        "type": "object",
        "description": "A problem document of RFC 9457.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "request_id": {"type": ["string", "null"]},
        },
    },
    "PostedEvent": {
        "type": "object",
        "additionalProperties": False,
        "required": ["payload"],
        "properties": {
            "idempotency_key": {
                "anyOf": [_NAME, {"type": "null"}],
                "description": "Required here or as the header Idempotency-Key. If both are given, "
                "they must agree.",
            },
            "event_type": {**_NAME, "default": "webhook"},
            "payload": {"description": "Any JSON value, stored as its exact bytes."},
            "lane": {"anyOf": [_NAME, {"type": "null"}]},
            "source_sequence": {
                "type": ["integer", "null"],
                "format": "int64",
                "minimum": -(1 << 63),
                "maximum": (1 << 63) - 1,
                "description": "An integer without a fraction or an exponent: 1, not 1.0.",
            },
            "source_emitted_at": {
                "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]
            },
        },
    },
    "AcceptedEvent": {
        "type": "object",
        "required": ["id", "idempotency_key", "status", "created_at"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "idempotency_key": {"type": "string"},
            "status": {"enum": ["pending", "processing", "completed", "failed"]},
            "created_at": {"type": "string", "format": "date-time"},
        },
    },
    "ReceivedDelivery": {
        "allOf": [{"$ref": "#/components/schemas/AcceptedEvent"}],
        "type": "object",
        "required": ["duplicate"],
        "properties": {"duplicate": {"type": "boolean"}},
    },
    "BatchReceipt": {
        "allOf": [{"$ref": "#/components/schemas/AcceptedEvent"}],
        "type": "object",
        "required": ["http_status"],
        "properties": {
            "http_status": {"enum": [200, 202], "description": "202: new. 200: a duplicate."},
            "conflict": {
                "type": "boolean",
                "description": "`true` if the payload differs from the stored one.",
            },
        },
    },
}

_SECURITY: dict[str, Any] = {
    "IngestToken": {"type": "http", "scheme": "bearer", "description": "INGEST_TOKEN"},
    "OperatorToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "API_TOKEN, or on SQLite the token in the file DB_PATH.token",
    },
    "ReadToken": {"type": "http", "scheme": "bearer", "description": "READ_TOKEN"},
}

_PROBLEMS = {
    "400": "The body, the key or a header is not valid.",
    "401": "The ingest token is missing or wrong.",
    "403": "A page of another origin sent the request.",
    "408": "The body arrived too slowly, or was the slowest when the buffer was full.",
    "413": "The body is too large.",
    "415": "The body is compressed or multipart.",
    "429": "Too many events wait already; see Retry-After.",
    "503": "The disk or database is unavailable, or the server starts or stops; see Retry-After.",
}

_SOURCE_PROBLEMS = {
    "401": "The signature is missing or wrong, or was made too long ago.",
    "403": "The handshake is forged, or a page of another origin sent the request.",
    "404": "There is no source of this name.",
    "405": "The request is no handshake of this source.",
    "415": "The body is compressed.",
}
_SOURCE_PARAMETER = {
    "name": "source",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_.-]{0,62}$"},
}
_LINES: tuple[type[BaseModel], ...] = (
    PreviewResponse,
    ProgressLine,
    ErrorLine,
    ReleaseLine,
    DropLine,
)
_ACCEPTED = {"application/json": {"schema": {"$ref": "#/components/schemas/AcceptedEvent"}}}


def add_openapi_route(api: FastAPI, settings: Settings) -> None:
    describe = cache(partial(describe_routes, api, settings))

    @add(api, Route.OPENAPI, include_in_schema=False)
    def openapi(request: Request) -> JSONResponse:
        """Return the document. FastAPI runs a plain function in a thread: generating the document
        would block the event loop for long."""
        prefix = request.scope.get("root_path", "").rstrip("/")
        servers = {"servers": [{"url": prefix}]} if prefix else {}
        return JSONResponse({**describe(), **servers})


def describe_routes(api: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the document of FastAPI with the fast path, the probes, and the tokens that this
    server requires."""
    document = api.openapi()
    paths = document["paths"]
    for route, operation in _raw_operations().items():
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_SCHEMAS | _line_schemas() | _probe_schemas())
    components["securitySchemes"] = _SECURITY
    for route in set(Route) - {Route.OPENAPI}:
        operation = paths[route.path][route.method.lower()]
        operation["responses"].pop("422", None)  # an invalid value gets 400
        operation["security"] = [{name: []} for name in _tokens(route.access, settings)]
    paths[Route.EVENT_BY_ID.path]["get"]["responses"].pop("403", None)
    return document


def _raw_operations() -> dict[Route, dict[str, Any]]:
    unready = {"503": {"description": "A problem", "content": _PROBLEM_CONTENT}}
    refused = {str(status): problem for status, problem in problem_responses(401, 403).items()}
    health = {"application/json": {"schema": {"$ref": "#/components/schemas/HealthResponse"}}}
    ready = {"application/json": {"schema": {"$ref": "#/components/schemas/ReadyResponse"}}}
    return {
        Route.POST_EVENT: _post(),
        Route.POST_BATCH: _batch(),
        Route.DELIVER: _deliver(),
        Route.HANDSHAKE: _handshake(),
        Route.HEALTH: _probe("Health", Probes.health, health, {}),
        Route.READY: _probe("Ready", Probes.ready, ready, unready),
        Route.METRICS: _probe("Metrics", Probes.metrics, {"text/plain": {}}, refused),
    }


def _probe(
    name: str, probe: Callable[..., Any], content: dict[str, Any], problems: dict[str, Any]
) -> dict[str, Any]:
    return {
        "tags": ["operations"],
        "summary": name,
        "operationId": f"{name}_{name}_get".lower(),
        "description": getdoc(probe),
        "responses": {
            "200": {"description": "Successful Response", "content": content},
            **problems,
        },
    }


def _probe_schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        (HealthResponse, ReadyResponse), ref_template="#/components/schemas/{name}"
    )
    return schemas


def _line_schemas() -> dict[str, Any]:
    """Return the schemas of NDJSON lines: FastAPI knows only whole responses."""
    models: list[tuple[type[BaseModel], Literal["serialization"]]] = [
        (model, "serialization") for model in _LINES
    ]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions


def _tokens(access: Access, settings: Settings) -> list[str]:
    """Return the tokens that each give this access; none if it is open."""
    match access:
        case Access.SENDER if settings.ingest_token:
            return ["IngestToken"]
        case Access.LOOKUP if settings.ingest_token:
            return ["IngestToken", "OperatorToken"]
        case Access.SCRAPER if settings.metrics_access == "open":
            return []
        case Access.SCRAPER | Access.READER:
            return ["OperatorToken", *(["ReadToken"] if settings.read_token else [])]
        case Access.OPERATOR:
            return ["OperatorToken"]
        case Access.SENDER | Access.SOURCE | Access.LOOKUP | Access.OPEN:
            return []


def _post() -> dict[str, Any]:
    return {
        "tags": ["webhooks"],
        "summary": "Accept an event",
        "operationId": "post_webhook",
        "description": "The response is sent when the event is durable.",
        "parameters": [
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": _KEY_HEADER}
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/PostedEvent"}}
            },
        },
        "responses": {
            "202": {"description": "New, and durable.", "content": _ACCEPTED},
            "200": {
                "description": "A duplicate: the stored event and its current status.",
                "headers": {
                    "Ackbox-Conflict": {
                        "description": "`true` if the payload differs from the stored one.",
                        "schema": {"type": "string"},
                    }
                },
                "content": _ACCEPTED,
            },
            **_problem_responses(),
        },
    }


def _batch() -> dict[str, Any]:
    return {
        "tags": ["webhooks"],
        "summary": "Accept many events",
        "operationId": "post_webhook_batch",
        "description": "One JSON object per line, as for POST /webhooks. The response has one line "
        "for each: a receipt with `http_status`, or a problem.",
        "requestBody": {"required": False, "content": ndjson_content("PostedEvent")},
        "responses": {
            "200": {
                "description": "One line for each line of the request, in order. If the batch has "
                "too many lines, or too many invalid ones, the last line is a problem.",
                "content": ndjson_content("BatchReceipt", "Problem"),
            },
            **_problem_responses(),
        },
    }


def _deliver() -> dict[str, Any]:
    received = {"application/json": {"schema": {"$ref": "#/components/schemas/ReceivedDelivery"}}}
    return {
        "tags": ["webhooks"],
        "summary": "Receive a delivery",
        "operationId": "post_delivery",
        "description": "A request of a real sender, verified by the scheme of its source. The body "
        "may have any bytes, and is stored exactly.",
        "parameters": [_SOURCE_PARAMETER],
        "requestBody": {"required": False, "content": {"*/*": {"schema": {}}}},
        "responses": {
            "202": {"description": "Durable: new, or a duplicate.", "content": received},
            "200": {
                "description": "The response to a handshake; or the same as 202, for senders that "
                "take only 200 for a success.",
                "content": {"*/*": {}},
            },
            **_source_problems("400", "401", "403", "404", "408", "413", "415", "429", "503"),
        },
    }


def _handshake() -> dict[str, Any]:
    return {
        "tags": ["webhooks"],
        "summary": "Respond to a handshake",
        "operationId": "get_handshake",
        "description": "A request by which a sender checks the endpoint before it delivers.",
        "parameters": [_SOURCE_PARAMETER],
        "responses": {
            "200": {"description": "The response to the handshake.", "content": {"*/*": {}}},
            **_source_problems("400", "401", "403", "404", "405", "408", "413", "415", "503"),
        },
    }


def _source_problems(*statuses: str) -> dict[str, Any]:
    texts = {**_PROBLEMS, **_SOURCE_PROBLEMS}
    return {
        status: {"description": texts[status], "content": _PROBLEM_CONTENT} for status in statuses
    }


def _problem_responses() -> dict[str, Any]:
    return {
        status: {"description": text, "content": _PROBLEM_CONTENT}
        for status, text in _PROBLEMS.items()
    }


def add(api: FastAPI, route: Route, **options: Any) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that serves a route of the table by a function."""
    return api.api_route(route.path, methods=[route.method], **options)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a FastAPI route that may send these statuses."""
    return {
        status: {"description": "A problem", "content": _PROBLEM_CONTENT} for status in statuses
    }
