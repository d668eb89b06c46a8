"""Rules that the schema cannot express. schemathesis loads this module by `SCHEMATHESIS_HOOKS`."""

from typing import Any

import schemathesis

_ABSENT = (
    "/in/{source}",
    "/{quarantine_id}",
    "/{quarantine_id}/body",
    "/{quarantine_id}/release",
    "/{quarantine_id}/drop",
)


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return str(value).encode()


@schemathesis.hook
def before_call(
    _: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]
) -> None:
    """Make valid cases valid: an event needs a key, in its body or as a header, and a whole number
    is never written as 1.0. The schema can express neither."""
    event: Any = case.body
    if case.operation.label != "POST /webhooks" or not is_meant_to_be_valid(case):
        return
    case.headers.pop("Idempotency-Key", None)
    if not event.get("idempotency_key"):
        case.headers["Idempotency-Key"] = "key"
    if isinstance(event.get("source_sequence"), float):
        event["source_sequence"] = int(event["source_sequence"])


def is_meant_to_be_valid(case: schemathesis.Case[Any]) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_load_schema(_: schemathesis.HookContext, document: dict[str, Any]) -> None:
    """Remove the schema of a batch: any NDJSON body is text, so no body can violate it. Remove the
    routes of sources, and of single requests of the quarantine: this server has none, so that each
    request gets 404."""
    for path in [path for path in document["paths"] if path.endswith(_ABSENT)]:
        del document["paths"][path]
    body = document["paths"]["/webhooks/batch"]["post"]["requestBody"]
    del body["content"]["application/x-ndjson"]["schema"]
