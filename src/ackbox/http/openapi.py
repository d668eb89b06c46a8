"""The OpenAPI document: FastAPI's own, plus the ingest routes that FastAPI never sees."""

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
        "description": "RFC 9457: what was wrong.",
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
                "description": "Or as header Idempotency-Key; if both are given, they must agree.",
            },
            "event_type": {**_NAME, "default": "webhook"},
            "payload": {"description": "Any JSON value, kept as the exact bytes it came in."},
            "lane": {"anyOf": [_NAME, {"type": "null"}]},
            "source_sequence": {
                "type": ["integer", "null"],
                "format": "int64",
                "minimum": -(1 << 63),
                "maximum": (1 << 63) - 1,
                "description": "Without a fraction and without an exponent: 1, not 1.0.",
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
            "http_status": {"enum": [200, 202], "description": "202: new. 200: known already."},
            "conflict": {
                "type": "boolean",
                "description": "`true` when the payload differs from the one kept.",
            },
        },
    },
}

_SECURITY: dict[str, Any] = {
    "IngestToken": {"type": "http", "scheme": "bearer", "description": "INGEST_TOKEN"},
    "OperatorToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "API_TOKEN, or on SQLite what the file DB_PATH.token holds",
    },
    "ReadToken": {"type": "http", "scheme": "bearer", "description": "READ_TOKEN"},
}

_PROBLEMS = {
    "400": "The body, the key or a header is not valid.",
    "401": "The ingest token is missing or wrong.",
    "403": "A page of another origin sends this.",
    "408": "The body came too slowly, or was the slowest when the buffer was full.",
    "413": "The body is too large.",
    "415": "The body is compressed or multipart.",
    "429": "Too many events wait already; see Retry-After.",
    "503": "The disk or database is in trouble, or the server is stopping; see Retry-After.",
}

_NEVER = {**dict.fromkeys(OPEN_PATHS, ("401", "403")), "/webhooks/{event_id}": ("403",)}
"""Statuses that all routes declare and these never send."""

_ACCEPTED = {"application/json": {"schema": {"$ref": "#/components/schemas/AcceptedEvent"}}}


def add_ingest_routes(api: FastAPI, settings: Settings) -> None:
    """Make `api.openapi()` tell of the fast path too, and of the tokens that this server wants."""
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
                operation["responses"].pop("422", None)  # a bad value is a 400 here
                names = _tokens(path, method, settings)
                operation["security"] = [{name: []} for name in names]
                for status in _NEVER.get(path, ()):
                    operation["responses"].pop(status, None)
        return document

    api.openapi = openapi  # type: ignore[method-assign]


def _line_schemas() -> dict[str, Any]:
    """What the lines of a replay are: FastAPI looks at whole responses only."""
    models: list[tuple[type[BaseModel], Literal["serialization"]]] = [
        (model, "serialization") for model in (PreviewResponse, ProgressLine, ErrorLine)
    ]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions


def _tokens(path: str, method: str, settings: Settings) -> list[str]:
    """Return the tokens of which any opens this route; none if it is open."""
    if path in OPEN_PATHS or (path == "/metrics" and settings.metrics_access == "open"):
        return []
    if path.startswith("/webhooks"):
        may_look = ["OperatorToken"] if method == "get" else []
        return ["IngestToken", *may_look] if settings.ingest_token else []
    return ["OperatorToken", *(["ReadToken"] if settings.read_token and method == "get" else [])]


def _post() -> dict[str, Any]:
    return {
        "tags": ["webhooks"],
        "summary": "Accept an event",
        "operationId": "post_webhook",
        "description": "ResponseSent when the event is safe on disk.",
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
                "description": "Known already; where that event stands now.",
                "headers": {
                    "Ackbox-Conflict": {
                        "description": "`true` when the payload differs from the one kept.",
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
        "description": "One JSON object a line, as for POST /webhooks; answered line for line with "
        "a receipt that has `http_status`, or with a problem.",
        "requestBody": {"required": False, "content": ndjson_content("PostedEvent")},
        "responses": {
            "200": {
                "description": "A line for every line, in order. If the batch has too many lines, "
                "or too many that are not valid, the last line is a problem that says so.",
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
    """For the `responses` of a FastAPI route."""
    return {
        status: {"description": "A problem", "content": _PROBLEM_CONTENT} for status in statuses
    }
