"""One connection from its opening to its end: deadlines, refusals, and how it is closed (F39, F57).

`deadline` is when the peer must have done its part, and `since` when we began to wait for it; while
the peer waits for us there is no deadline. Deadlines are swept once a second, so that a request
pays for no timer of its own.

A connection ends in one way. It is `closing` when nothing that still comes can matter: a last
response waits until the requests before it have theirs. It is then `lingering`: we have said that
no more will come, and read and discard what still does, within limits of bytes and time. Closing at
once would reset the connection, and a peer that is still sending would lose the response.
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
from ackbox.http.requests import request_id
from ackbox.telemetry import Observer, ResponseSent, to_nobody

REQUEST_SECONDS = 10.0
BYTES_A_SECOND = 64 * 1024
TAKE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
LINGER_BYTES = 64 * 1024 * 1024


class Connection(HttpToolsProtocol):
    """The part of the protocol that does not look at requests."""

    max_connections = 1000
    observe: Observer = staticmethod(to_nobody)
    cycle: Exchange
    """The last request whose headers have come; None before the first."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.responses: Any = ResponseTransport(transport, self.linger)
        self.receiving = self.in_headers = False  # a request; its headers
        self.discarded_bytes = 0
        self.closing = self.lingering = self.at_eof = self.stopping = False
        self.final_response = b""
        self.started: Exchange | None = None
        self.task: asyncio.Task[None] | None = None
        self.wait_for_request()
        if len(self.connections) > self.max_connections:
            make_room(self.server_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is at work, which need not be the last that came."""
        super().connection_lost(exc)
        if self.started is not None:
            self.started.lose()

    def eof_received(self) -> bool:  # type: ignore[override] # asyncio lets it say so
        """Keep the connection open, as far as complete requests still wait for a response."""
        self.at_eof = True
        if self.receiving and not self.closing:
            self._end(b"")
        if self.lingering or not self._is_at_work():
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
        """As uvicorn's, without a timer for every response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._wait(TAKE_SECONDS)
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
        self._wait(TAKE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.receiving or self.closing:
            self.wait_for_request()
        elif self.cycle.response_complete:
            self.wait_for_next()
        else:
            self.deadline = inf

    def shutdown(self) -> None:
        """Answer what was received whole; tell the rest to come again."""
        self.stopping = True
        if self.receiving:
            self.refuse(503, "The server is shutting down.", b"retry-after: 1\r\n")
        if self._is_at_work():
            self.cycle.end_connection()
        else:
            self.transport.close()

    def sweep(self, now: float) -> None:
        """Close the connection if the peer has kept us waiting past its deadline."""
        if now < self.deadline:
            return
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self.flow.read_paused:
            self.deadline = now + 1  # it is we who do not read
        elif self.receiving and not self.closing:
            self.refuse(408, _too_slow(self.in_headers))
        else:
            self.transport.close()

    def wait_for_request(self) -> None:
        self._wait(REQUEST_SECONDS)

    def wait_for_next(self) -> None:
        self._wait(KEEP_ALIVE_SECONDS)

    def limit_credit(self) -> None:
        """Give no time ahead: a body that came quickly must not stop for longer than any other."""
        latest = self.loop.time() + REQUEST_SECONDS
        self.deadline = min(self.deadline, latest)

    def refuse(self, status: int, detail: str, headers: bytes = b"") -> None:
        """Respond to what cannot be handed to the app, in its turn, and close."""
        if not self.closing and not self.transport.is_closing():
            self._end(b"" if self._is_responded() else self._problem(status, detail, headers))

    def discard(self, size: int) -> None:
        """Count what came when it could not matter any more."""
        self.discarded_bytes += size
        if not self.lingering:
            return
        if self.discarded_bytes > LINGER_BYTES:
            self.transport.abort()
            return
        latest = max(self.deadline, self.loop.time() + LINGER_SECONDS)
        self.deadline = min(self.deadline + size / BYTES_A_SECOND, latest)

    def linger(self) -> None:
        """Close as the module says; at once if the peer sends no more, or we stop."""
        if self.lingering:
            return
        self.closing = self.lingering = True
        self.pipeline.clear()
        if self.at_eof or self.stopping:
            self.transport.close()
            return
        unread = self.transport.get_write_buffer_size()
        self._wait(TAKE_SECONDS if unread else LINGER_SECONDS)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _wait(self, seconds: float) -> None:
        self.since = now = self.loop.time()
        self.deadline = now + seconds

    def _end(self, final_response: bytes) -> None:
        """Read no more requests, give up one that is incomplete, and close when the others have
        their responses."""
        self.closing = True
        self.final_response = final_response
        if self.receiving and not self.in_headers:
            self._give_up()
        if self._is_at_work():
            self.deadline = inf
        else:
            self._send_final()

    def _give_up(self) -> None:
        """Let go of the request whose body is incomplete."""
        if self.pipeline:
            self.pipeline.popleft()
        else:
            self.cycle.lose()

    def _is_responded(self) -> bool:
        """The app has begun to respond to the request that is still coming in."""
        return self.receiving and not self.in_headers and self.cycle.response_started

    def _is_at_work(self) -> bool:
        """The app has a request that waits for its response."""
        return bool(self.pipeline) or (
            self.started is not None
            and not self.started.response_complete
            and not self.started.lost
        )

    def _problem(self, status: int, detail: str, headers: bytes) -> bytes:
        self.observe(ResponseSent("other", status))
        made_id = request_id(dict(self.headers or ()).get(b"x-request-id"), random.getrandbits)
        note_refusal(self.observe, status, detail, made_id, self.client)
        body = problem_body(status, detail, made_id)
        return (
            b"%s%scontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"x-request-id: %s\r\nconnection: close\r\n\r\n%s"
        ) % (STATUS_LINE[status], headers, len(body), made_id.encode(), body)

    def _send_final(self) -> None:
        self.transport.write(self.final_response)
        self.linger()

    def _close_after_task(self) -> None:
        """Close when the app has ended, even if it gave no response: the client may have left."""
        if self.task is not None:
            self.task.add_done_callback(lambda _: self.linger())


def _too_slow(in_headers: bool) -> str:
    allowed = f"a request has {REQUEST_SECONDS:.0f} seconds to arrive"
    if in_headers:
        return f"The headers came too slowly: {allowed}."
    more = f"one more for every {BYTES_A_SECOND // 1024} KiB of its body"
    return f"The body came too slowly: {allowed}, and {more}."
