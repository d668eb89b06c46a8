"""One connection from its opening to its end: deadlines, refusals, and how it is closed (F39, F57).

`deadline` is when the peer must have sent or read what the server waits for, and `waiting_since` is
when that wait began. While the peer waits for the server, there is no deadline. Deadlines are swept
once a second, so that a request needs no timer of its own.

Every connection ends in two steps. While it is `closing`, further bytes are ignored, and a final
response waits until the earlier requests have their responses. Then it is `lingering`: the server
has shut down its sending side, and reads and discards bytes within limits of size and time. Closing
at once would reset the connection, and a peer that is still sending would lose the response.
"""

import asyncio
import random
from math import inf
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ackbox.http.connection_limit import make_room
from ackbox.http.exchange import Exchange, ResponseTransport
from ackbox.http.problems import problem_body
from ackbox.http.refusals import note_refusal
from ackbox.http.requests import choose_request_id
from ackbox.telemetry import Observer, ResponseSent, ignore_facts

REQUEST_SECONDS = 10.0
MIN_BYTES_PER_SECOND = 64 * 1024
READ_RESPONSE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
LINGER_BYTES = 64 * 1024 * 1024


class Connection(HttpToolsProtocol):
    """The part of the protocol that does not inspect requests."""

    max_connections = 1000
    observe: Observer = staticmethod(ignore_facts)
    cycle: Exchange
    """The latest request whose headers are complete; None before the first."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.responses: Any = ResponseTransport(transport, self.linger)
        self.receiving = False  # part of a request has arrived, and the rest has not
        self.in_headers = False  # its headers are not complete yet
        self.discarded_bytes = 0
        self.closing = self.lingering = self.at_eof = self.stopping = False
        self.final_response = b""
        self.started: Exchange | None = None
        self.task: asyncio.Task[None] | None = None
        self.wait_for_request()
        if len(self.connections) > self.max_connections:
            make_room(self.server_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark as lost the request on which the app works now. It need not be the latest
        request."""
        super().connection_lost(exc)
        if self.started is not None:
            self.started.mark_lost()

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio allows a bool here
        """Keep the connection open while complete requests still wait for a response."""
        self.at_eof = True
        if self.receiving and not self.closing:
            self._begin_closing(b"")
        if self.lingering or not self._is_busy():
            return False
        if not self.closing:
            self.cycle.half_close()
        if not self.pipeline:
            self._close_after_task()
        return True

    def start(self, cycle: Exchange) -> None:
        """Run the app on a request."""
        self.started = cycle
        self.task = task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        if self.at_eof and not self.pipeline:
            self._close_after_task()

    def on_response_complete(self) -> None:
        """Do what uvicorn does, without a timer for every response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._wait(READ_RESPONSE_SECONDS)
        elif self.lingering:
            return
        elif self.pipeline:
            self.flow.resume_reading()
            self.start(self.pipeline.pop()[0])  # type: ignore[arg-type]
        elif self.closing:
            self._send_final()
        else:
            self.flow.resume_reading()
            if not self.receiving:
                self.wait_for_next()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(READ_RESPONSE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.receiving or self.closing:
            self.wait_for_request()
        elif self.cycle.response_complete:
            self.wait_for_next()
        else:
            self.deadline = inf

    def shutdown(self) -> None:
        """Let complete requests get their responses; refuse an incomplete request with 503."""
        self.stopping = True
        if self.receiving:
            self.refuse(503, "The server is shutting down.", b"retry-after: 1\r\n")
        if self._is_busy():
            self.cycle.end_connection()
        else:
            self.transport.close()

    def sweep(self, now: float) -> None:
        """Close the connection if the peer has missed its deadline."""
        if now < self.deadline:
            return
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self.flow.read_paused:
            self.deadline = now + 1  # the server has paused reading; the peer is not late
        elif self.receiving and not self.closing:
            self.refuse(408, _too_slow(self.in_headers))
        else:
            self.transport.close()

    def wait_for_request(self) -> None:
        self._wait(REQUEST_SECONDS)

    def wait_for_next(self) -> None:
        self._wait(KEEP_ALIVE_SECONDS)

    def limit_credit(self) -> None:
        """Cap the deadline: a body that arrived quickly may not pause longer than any other."""
        latest = self.loop.time() + REQUEST_SECONDS
        self.deadline = min(self.deadline, latest)

    def refuse(self, status: int, detail: str, headers: bytes = b"") -> None:
        """Send a problem for a request that cannot be passed to the app, after the responses to
        the requests before it, and close."""
        if self.closing or self.transport.is_closing():
            return
        has_begun = self._has_begun_response()
        self._begin_closing(b"" if has_begun else self._problem(status, detail, headers))

    def discard(self, size: int) -> None:
        """Count bytes that arrive after the connection began to close."""
        self.discarded_bytes += size
        if not self.lingering:
            return
        if self.discarded_bytes > LINGER_BYTES:
            self.transport.abort()
            return
        latest = max(self.deadline, self.loop.time() + LINGER_SECONDS)
        self.deadline = min(self.deadline + size / MIN_BYTES_PER_SECOND, latest)

    def linger(self) -> None:
        """Close in two steps, as the module's docstring describes. If the peer has ended its side,
        or if the server stops, close at once."""
        if self.lingering:
            return
        self.closing = self.lingering = True
        self.pipeline.clear()
        if self.at_eof or self.stopping:
            self.transport.close()
            return
        unread = self.transport.get_write_buffer_size()
        self._wait(READ_RESPONSE_SECONDS if unread else LINGER_SECONDS)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _wait(self, seconds: float) -> None:
        self.waiting_since = now = self.loop.time()
        self.deadline = now + seconds

    def _begin_closing(self, final_response: bytes) -> None:
        """Read no more requests, drop an incomplete request, and close when the complete requests
        have their responses."""
        self.closing = True
        self.final_response = final_response
        if self.receiving and not self.in_headers:
            self._drop_incomplete()
        if self._is_busy():
            self.deadline = inf
        else:
            self._send_final()

    def _drop_incomplete(self) -> None:
        """Drop the request whose body is incomplete."""
        if self.pipeline:
            self.pipeline.popleft()
        else:
            self.cycle.mark_lost()

    def _has_begun_response(self) -> bool:
        """Return whether the app has begun to respond to the request that is still arriving."""
        return self.receiving and not self.in_headers and self.cycle.response_started

    def _is_busy(self) -> bool:
        """Return whether a request still waits for its response."""
        return bool(self.pipeline) or (
            self.started is not None
            and not self.started.response_complete
            and not self.started.lost
        )

    def _problem(self, status: int, detail: str, headers: bytes) -> bytes:
        self.observe(ResponseSent("other", status))
        header = dict(self.headers or ()).get(b"x-request-id")
        request_id = choose_request_id(header, random.getrandbits)
        note_refusal(self.observe, status, detail, request_id, self.client)
        body = problem_body(status, detail, request_id)
        return (
            b"%s%scontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"x-request-id: %s\r\nconnection: close\r\n\r\n%s"
        ) % (STATUS_LINE[status], headers, len(body), request_id.encode(), body)

    def _send_final(self) -> None:
        self.transport.write(self.final_response)
        self.linger()

    def _close_after_task(self) -> None:
        """Close when the app has ended, even if it sent no response: the client may have
        disconnected."""
        if self.task is not None:
            self.task.add_done_callback(lambda _: self.linger())


def _too_slow(in_headers: bool) -> str:
    allowed = f"a request has {REQUEST_SECONDS:.0f} seconds to arrive"
    if in_headers:
        return f"The headers arrived too slowly: {allowed}."
    more = f"one more for every {MIN_BYTES_PER_SECOND // 1024} KiB of its body"
    return f"The body arrived too slowly: {allowed}, and {more}."
