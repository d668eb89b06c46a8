"""NDJSON, which is one JSON document per line, and its description in the OpenAPI document.

OpenAPI 3.1 cannot describe a sequence of documents. The body is described as text, which every
generated client can read, and `x-line-schema` describes its lines.
"""

from typing import Any

from fastapi.responses import StreamingResponse

NDJSON = "application/x-ndjson"


class NdjsonResponse(StreamingResponse):
    media_type = NDJSON


def ndjson_content(*lines: str) -> dict[str, Any]:
    """Return the `content` of a body whose lines each match one of these schemas."""
    kinds = [{"$ref": f"#/components/schemas/{name}"} for name in lines]
    text = {"type": "string", "description": "One JSON document per line."}
    return {NDJSON: {"schema": text, "x-line-schema": {"anyOf": kinds}}}
