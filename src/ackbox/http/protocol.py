"""uvicorn's HTTP protocol with the limits it lacks (F39, F40, F52).

A request has ten seconds to arrive, and one more for every 64 KiB of its body; 64 KiB for its
headers, 8 KiB for its URL. An answer must be taken, an idle connection is closed, and when
connections run out, the one that has kept us waiting longest makes room. What breaks the protocol
gets a problem document, after the answers to what came before it. Deadlines are swept once a
second, so that a request pays for no timer of its own.
"""

import random
from functools import partial
from heapq import nsmallest
from math import inf
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from ackbox.http.problems import problem_body
from ackbox.http.requests import WHOLE_ANSWER, Headers, request_id
from ackbox.telemetry import Answered, Observer, to_nobody

REQUEST_SECONDS = 10.0
BYTES_A_SECOND = 64 * 1024
TAKE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
HEADER_BYTES = 64 * 1024
URL_BYTES = 8 * 1024
PIPELINED_REQUESTS = 128
_FRAMING = 16
"""What is fed and becomes no body is headers, chunk sizes, trailers: bounded; but a body may well
come in chunks of a byte."""
_HEADER_MARKS = len(": \r\n")
_VERSIONS = frozenset({"1.0", "1.1"})


class Refusal(Exception):
    """What arrived cannot become a request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class HardenedProtocol(HttpToolsProtocol):
    """`deadline` is when the peer must have done its part, and `since` when we began to wait for
    it; while it waits for us there is no deadline."""

    max_connections = 1000
    observe: Observer = staticmethod(to_nobody)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.receiving = self.in_headers = False  # a request; its headers
        self.header_bytes = self.fed_bytes = 0
        self.deaf = False  # nothing that still comes can matter
        self.last_words: bytes | None = None
        self._wait(REQUEST_SECONDS)
        if len(self.connections) > self.max_connections:
            make_room(self.server_state)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.fed_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_broken(error)
        if self.receiving and self.fed_bytes > HEADER_BYTES:
            self._refuse(431, f"The headers are larger than {HEADER_BYTES} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.receiving = self.in_headers = True
        self.header_bytes = self.fed_bytes = 0
        self._wait(REQUEST_SECONDS)

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > URL_BYTES:
            raise Refusal(414, f"The URL is longer than {URL_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, and counted. What stands behind the body is no header: a proxy in front
        has not seen it there."""
        if not self.in_headers:
            return
        name = name.lower()
        self.headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.header_bytes += len(name) + len(value) + _HEADER_MARKS
        if self.header_bytes > HEADER_BYTES:
            raise Refusal(431, f"The headers are larger than {HEADER_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._check_upgrade()
            return
        if self.parser.get_http_version() not in _VERSIONS:
            raise Refusal(400, "The request must be HTTP/1.1 or HTTP/1.0.")
        if len(self.pipeline) >= PIPELINED_REQUESTS:
            raise Refusal(429, f"More than {PIPELINED_REQUESTS} requests wait on one connection.")
        super().on_headers_complete()
        whole: Any = partial(self._answer_whole, self.cycle)
        self.scope["extensions"] = {WHOLE_ANSWER: whole}
        self.in_headers = False

    def on_body(self, body: bytes) -> None:
        """As uvicorn's, without a look for upgrades; what comes buys time."""
        self.fed_bytes -= _FRAMING * len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        self.deadline += len(body) / BYTES_A_SECOND
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.in_headers:
            return  # of an upgrade, whose body is still to come
        self.receiving = False
        cycle = self.cycle
        if cycle.response_complete:
            self._wait(KEEP_ALIVE_SECONDS)
            return
        if not self.flow.write_paused:
            self.deadline = inf
        cycle.more_body = False
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for every answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._wait(TAKE_SECONDS)
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.last_words is not None:
            self._say_last_words(self.last_words)
        elif not self.receiving:
            self._wait(KEEP_ALIVE_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(TAKE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.receiving or self.deaf:
            self._wait(REQUEST_SECONDS)
        elif self.cycle.response_complete:
            self._wait(KEEP_ALIVE_SECONDS)
        else:
            self.deadline = inf

    def shutdown(self) -> None:
        """What was received whole is answered; the rest is told to come again."""
        if self.receiving:
            self._refuse(503, "The server is shutting down.", b"retry-after: 1\r\n")
        if self.deaf and self.last_words is None:
            self.transport.close()
        else:
            super().shutdown()

    def sweep(self, now: float) -> None:
        """Close what has kept us waiting past its deadline."""
        if now < self.deadline:
            return
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self.flow.read_paused:
            self.deadline = now + 1  # it is we who do not read
        elif self.receiving and not self.deaf:
            self._refuse(408, _too_slow(self.in_headers))
        else:
            self.transport.close()

    def _answer_whole(self, cycle: Any, status: int, headers: Headers, body: bytes) -> bool:
        """An answer in one write, where ASGI's two messages make two system calls and two packets.
        False if it must go the usual way: it has no body, or the peer does not take what we say."""
        if self.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        if cycle.disconnected:
            return True
        lines = [b"%s: %s\r\n" % line for line in (*self.server_state.default_headers, *headers)]
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join((STATUS_LINE[status], *lines, end, body)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _wait(self, seconds: float) -> None:
        self.since = now = self.loop.time()
        self.deadline = now + seconds

    def _check_upgrade(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise Refusal(405, "This is no proxy: CONNECT is not offered.")

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """We offer no other protocol, so the request is plain HTTP/1.1. The parser has skipped its
        body, if any: a new one reads the request again, without the header that asked."""
        kept = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        version = self.parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.in_headers = False
        self.data_received(head + b"\r\n".join([*kept, b"", b""]) + rest)

    def _refuse_broken(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refusal):
            self._refuse(cause.status, str(cause))
        else:
            self._refuse(400, "The request is not valid HTTP/1.1.")

    def _refuse(self, status: int, detail: str, headers: bytes = b"") -> None:
        """Answer what cannot be answered by the app, in its turn, and hear no more."""
        if self.deaf or self.transport.is_closing():
            return
        self.deaf = True
        words = b"" if self._is_answered() else self._problem(status, detail, headers)
        if self._is_at_work():
            self.last_words = words
            self.deadline = inf
        else:
            self._say_last_words(words)

    def _is_answered(self) -> bool:
        """The app has begun to answer the request that is still coming in."""
        return self.receiving and not self.in_headers and self.cycle.response_started

    def _is_at_work(self) -> bool:
        """The app is still busy with requests before the one that is refused, which it forgets."""
        if self.receiving and not self.in_headers:
            if not self.pipeline:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                return False
            self.pipeline.popleft()
            return True
        last: Any = self.cycle  # None before the first request
        return last is not None and not last.response_complete

    def _problem(self, status: int, detail: str, headers: bytes) -> bytes:
        self.observe(Answered("other", status))
        made_id = request_id(dict(self.headers or ()).get(b"x-request-id"), random.getrandbits)
        body = problem_body(status, detail, made_id)
        return (
            b"%s%scontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"x-request-id: %s\r\nconnection: close\r\n\r\n%s"
        ) % (STATUS_LINE[status], headers, len(body), made_id.encode(), body)

    def _say_last_words(self, words: bytes) -> None:
        """Answer, say that no more will come, and give the peer a moment to read that: closing
        with unread bytes would reset the connection and take the answer with it."""
        self._wait(LINGER_SECONDS)
        self.transport.write(words)
        if self.transport.can_write_eof():
            self.transport.write_eof()


def make_room(state: ServerState) -> None:
    """Close connections that have kept us waiting longest, a hundredth of them, so that a flood of
    new ones does not pay for a look at all each time; those at work are left alone."""
    waiting: list[Any] = [c for c in state.connections if _is_waiting(c)]
    for connection in nsmallest(len(waiting) // 100 + 1, waiting, key=lambda c: c.since):
        connection.transport.abort()


def protocol_class(max_connections: int, observe: Observer) -> type[HardenedProtocol]:
    chosen = {"max_connections": max_connections, "observe": staticmethod(observe)}
    return type("HardenedProtocol", (HardenedProtocol,), chosen)


def _is_waiting(connection: Any) -> bool:
    return connection.deadline < inf and not connection.transport.is_closing()


def _too_slow(in_headers: bool) -> str:
    what = "The headers" if in_headers else "The body"
    return f"{what} came too slowly: a request has {REQUEST_SECONDS:.0f} seconds to arrive."
