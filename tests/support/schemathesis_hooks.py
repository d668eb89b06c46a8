"""What schemathesis cannot read from the schema; it loads this by `SCHEMATHESIS_HOOKS`."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return str(value).encode()


@schemathesis.hook
def before_call(
    _: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]
) -> None:
    """No schema can say that an event needs a key, in its body or as a header, nor that 1.0 is not
    written as a whole number."""
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
    """Whatever is sent as NDJSON is text: no body of a batch can be against its schema."""
    body = document["paths"]["/webhooks/batch"]["post"]["requestBody"]
    del body["content"]["application/x-ndjson"]["schema"]
