"""uvicorn's HTTP protocol with the limits it lacks (F39, F40, F52).

A request has ten seconds to send its headers, 64 KiB for them and 8 KiB for its URL; an idle
connection is closed; when connections run out, the one that has kept us waiting longest makes room.
What breaks the protocol gets a problem document. Deadlines are swept once a second, so that a
request pays for no timer of its own.
"""

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from ackbox.http.problems import problem_body

HEADER_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
HEADER_BYTES = 64 * 1024
URL_BYTES = 8 * 1024


class Refusal(Exception):
    """What arrived cannot become a request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class HardenedProtocol(HttpToolsProtocol):
    """`deadline` is when the peer must have sent its next part; None while it waits for us."""

    max_connections = 1000

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.deadline: float | None = self.loop.time() + HEADER_SECONDS
        self.header_bytes = 0
        self.idle = True
        self.lingering = False
        if len(self.connections) > self.max_connections:
            make_room(self.server_state)

    def data_received(self, data: bytes) -> None:
        if self.lingering:
            return
        if self.idle:
            self.idle = False
            self.deadline = self.loop.time() + HEADER_SECONDS
        try:
            self.parser.feed_data(data)
            if self.header_bytes >= 0:
                self._count_header_bytes(len(data))
        except Refusal as refusal:
            self._refuse(refusal.status, str(refusal))
        except httptools.HttpParserUpgrade:
            return  # an upgrade we do not offer: the request is answered as plain HTTP/1.1
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, Refusal):
                self._refuse(cause.status, str(cause))
            else:
                self._refuse(400, "The request is not valid HTTP/1.1.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > URL_BYTES:
            raise Refusal(414, f"The URL is longer than {URL_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_header_bytes(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self.header_bytes = -1
        self.deadline = None
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for every answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self.idle = True
            self.deadline = self.loop.time() + KEEP_ALIVE_SECONDS

    def sweep(self, now: float) -> None:
        """Close what has kept us waiting past its deadline."""
        if self.deadline is None or now < self.deadline:
            return
        if self.idle or self.lingering:
            self.transport.close()
        else:
            self._refuse(408, f"The headers took longer than {HEADER_SECONDS:.0f} seconds.")

    def _count_header_bytes(self, size: int) -> None:
        self.header_bytes += size
        if self.header_bytes > HEADER_BYTES:
            raise Refusal(431, f"The headers are larger than {HEADER_BYTES} bytes.")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer, say that no more will come, and give the peer a moment to read that: closing
        with unread bytes would reset the connection and take the answer with it."""
        if self.transport.is_closing():
            return
        self.lingering = True
        self.deadline = self.loop.time() + LINGER_SECONDS
        body = problem_body(status, detail)
        self.transport.write(
            b"%scontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (STATUS_LINE[status], len(body), body)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()


def make_room(state: ServerState) -> None:
    """Close the connection that has kept us waiting longest; those at work are left alone."""
    waiting = [c for c in state.connections if _deadline(c) is not None]
    if waiting:
        min(waiting, key=lambda c: _deadline(c) or 0.0).transport.abort()


def protocol_class(max_connections: int) -> type[HardenedProtocol]:
    return type("HardenedProtocol", (HardenedProtocol,), {"max_connections": max_connections})


def _deadline(connection: Any) -> float | None:
    deadline: float | None = connection.deadline
    return deadline
