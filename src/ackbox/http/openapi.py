"""The OpenAPI document: FastAPI's own, plus the ingest routes that bypass FastAPI."""

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ackbox.config import Settings
from ackbox.http.event_responses import ErrorLine, PreviewResponse, ProgressLine
from ackbox.http.guard import OPEN_PATHS
from ackbox.http.ndjson import ndjson_content
from ackbox.model import NAME_LIMIT

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

_NEVER = {**dict.fromkeys(OPEN_PATHS, ("401", "403")), "/webhooks/{event_id}": ("403",)}
"""Statuses that FastAPI declares for every route and that these routes never send."""

_ACCEPTED = {"application/json": {"schema": {"$ref": "#/components/schemas/AcceptedEvent"}}}


def add_ingest_routes(api: FastAPI, settings: Settings) -> None:
    """Make `api.openapi()` include the fast path and the tokens that this server requires."""
    generate = api.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        document["paths"].setdefault("/webhooks", {})["post"] = _post()
        document["paths"]["/webhooks/batch"] = {"post": _batch()}
        document.setdefault("components", {}).setdefault("schemas", {}).update(
            _SCHEMAS | _line_schemas()
        )
        document["components"]["securitySchemes"] = _SECURITY
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                operation["responses"].pop("422", None)  # an invalid value gets 400
                names = _tokens(path, method, settings)
                operation["security"] = [{name: []} for name in names]
                for status in _NEVER.get(path, ()):
                    operation["responses"].pop(status, None)
        return document

    api.openapi = openapi  # type: ignore[method-assign]


def _line_schemas() -> dict[str, Any]:
    """Return the schemas of a replay's NDJSON lines: FastAPI knows only whole responses."""
    models: list[tuple[type[BaseModel], Literal["serialization"]]] = [
        (model, "serialization") for model in (PreviewResponse, ProgressLine, ErrorLine)
    ]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions


def _tokens(path: str, method: str, settings: Settings) -> list[str]:
    """Return the tokens that each give access to this route; none if it is open."""
    if path in OPEN_PATHS or (path == "/metrics" and settings.metrics_access == "open"):
        return []
    if path.startswith("/webhooks"):
        operator = ["OperatorToken"] if method == "get" else []
        return ["IngestToken", *operator] if settings.ingest_token else []
    return ["OperatorToken", *(["ReadToken"] if settings.read_token and method == "get" else [])]


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


def _problem_responses() -> dict[str, Any]:
    return {
        status: {"description": text, "content": _PROBLEM_CONTENT}
        for status, text in _PROBLEMS.items()
    }


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a FastAPI route that may send these statuses."""
    return {
        status: {"description": "A problem", "content": _PROBLEM_CONTENT} for status in statuses
    }
