"""NDJSON: one JSON document a line, and how the OpenAPI document describes it.

OpenAPI 3.1 has no word for a sequence of documents. The body is described as text, which every
generated client can read, and `x-line-schema` says what each of its lines is.
"""

from typing import Any

from fastapi.responses import StreamingResponse

NDJSON = "application/x-ndjson"


class NdjsonResponse(StreamingResponse):
    media_type = NDJSON


def ndjson_content(*lines: str) -> dict[str, Any]:
    """The `content` of a request or response each of whose lines is one of these schemas."""
    kinds = [{"$ref": f"#/components/schemas/{name}"} for name in lines]
    text = {"type": "string", "description": "One JSON document a line."}
    return {NDJSON: {"schema": text, "x-line-schema": {"anyOf": kinds}}}
