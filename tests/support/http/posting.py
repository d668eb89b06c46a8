"""Bodies for `POST /webhooks`."""

import json
from uuid import uuid4

UNKNOWN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def new_key() -> str:
    return uuid4().hex


def posted(key: str | None = None, payload: object = None, **more: object) -> bytes:
    """Return the body of an event, with a new key unless one is given."""
    return json.dumps({"idempotency_key": key or new_key(), "payload": payload, **more}).encode()
