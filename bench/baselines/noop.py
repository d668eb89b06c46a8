"""The ceiling: reads the body and answers as ackbox would, but keeps nothing.

A raw ASGI app without framework, on ackbox's own server; whatever ackbox adds comes on top of this.
"""

import json
import os

from ackbox.http.requests import Receive, Scope, Send
from ackbox.http.server import listen, make_server, on_stop_signal, run
from bench import traffic

BODY = json.dumps(
    {
        "id": "01941f29-7c00-7000-8000-000000000000",
        "idempotency_key": traffic.key("0" * traffic.RUN_ID_LENGTH, 0, 0),
        "status": "pending",
        "created_at": "2025-01-01T00:00:00.000000Z",
    },
    separators=(",", ":"),
).encode()
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"x-request-id", b"01941f29-7c00-7000-8000-000000000000"),
]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def serve() -> None:
    server = make_server(app)
    on_stop_signal(server.stop)
    await server.serve([listen("127.0.0.1", int(os.environ["PORT"]))])


if __name__ == "__main__":
    run(serve())
