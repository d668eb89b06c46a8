"""Parse HTTP/1.1: uvicorn's protocol with the limits that it lacks (F39, F40, F52, F55).

A request has ten seconds to arrive, plus one second for every 64 KiB of its body. A body that
arrives fast earns no credit for a later pause: the deadline is never more than ten seconds away.
Headers may have 64 KiB, the URL 8 KiB. Bytes that break the protocol get a problem document, after
the responses to the requests before them.
"""

import asyncio
from math import inf
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from ackbox.http.connection import LINGER_BYTES, MIN_BYTES_PER_SECOND, Connection
from ackbox.http.exchange import Exchange
from ackbox.http.request_head import Refusal, check_host, check_transfer_encoding, split_target
from ackbox.http.requests import WHOLE_RESPONSE
from ackbox.telemetry import Observer

HEADER_BYTES = 64 * 1024
URL_BYTES = 8 * 1024
PIPELINED_REQUESTS = 128
_FRAMING = 16
"""Bytes that are not body (headers, chunk sizes, trailers) are bounded. A body may arrive in chunks
of one byte, so each body byte allows for this many framing bytes."""
_CHUNK_COST = 256
"""A discarded piece of a body counts as its bytes plus this many: tiny pieces cost time, and libuv
may read from one connection 32 times in one iteration of the event loop."""
_HEADER_SEPARATORS = len(": \r\n")
_VERSIONS = frozenset({"1.0", "1.1"})
_CHECKED_HEADERS = frozenset({b"expect", b"host", b"transfer-encoding"})


class HardenedProtocol(Connection):
    """A connection and the requests that arrive on it."""

    def connection_made(self, transport: Any) -> None:
        self.header_bytes = self.fed_bytes = 0
        self.known_host: bytes | None = None  # the last Host that passed the check
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            self.discard(len(data))
            return
        self.fed_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._continue_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_invalid(error)
        if self.receiving and not self.closing:
            self._limit_credit()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.receiving = self.in_headers = True
        self.has_trailers = False
        self.header_bytes = self.fed_bytes = self.discarded_bytes = 0
        self.host: bytes | None = None
        self.transfer_encoding: bytes | None = None
        self.wait_for_request()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > URL_BYTES:
            raise Refusal(414, f"The URL is longer than {URL_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Do what uvicorn does, and count the bytes. A field after the body is a trailer and never
        becomes a header: a proxy in front has not checked it as a header."""
        if not self.in_headers:
            self.has_trailers = True
            return
        name = name.lower()
        self.headers.append((name, value))
        self.header_bytes += len(name) + len(value) + _HEADER_SEPARATORS
        if self.header_bytes > HEADER_BYTES:
            raise Refusal(431, f"The headers are larger than {HEADER_BYTES} bytes.")
        if name in _CHECKED_HEADERS:
            self._note(name, value)

    def on_headers_complete(self) -> None:
        """Do what uvicorn does, plus the checks that the parser omits."""
        parser = self.parser
        method = parser.get_method()
        if parser.should_upgrade():
            self._check_upgrade(method)
            return
        version = parser.get_http_version()
        self._check_head(version)
        self._complete_scope(method, version)
        previous: Any = self.cycle  # None before the first request
        self.cycle = self._exchange(version)
        self.in_headers = False
        if previous is None or previous.response_complete:
            self.start(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Do what uvicorn does, without its check for upgrades; bytes extend the deadline."""
        size = len(body)
        self.fed_bytes -= _FRAMING * size
        self.deadline += size / MIN_BYTES_PER_SECOND
        cycle = self.cycle
        if cycle.response_complete:
            self._discard_body(size)
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Mark the request as complete. After a message that ends the connection, the parser drops
        every byte. A trailer may end the connection too: then close it after the response, or the
        client would wait for responses that never come."""
        if self.in_headers:
            return  # an upgrade request, whose body has not arrived yet
        self.receiving = False
        cycle = self.cycle
        if self.has_trailers and not self.parser.should_keep_alive():
            cycle.end_connection()
        if cycle.response_complete:
            self._await_next(cycle)
            return
        if not self.flow.write_paused:
            self.deadline = inf
        cycle.more_body = False
        cycle.message_event.set()

    def _await_next(self, cycle: Exchange) -> None:
        if cycle.keep_alive:
            self.wait_for_next()
        else:
            self.linger()

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._note_host(value)
        elif name == b"expect":
            self.expect_100_continue = value.strip().lower() == b"100-continue"
        elif self.transfer_encoding is None:
            self.transfer_encoding = value
        else:
            self.transfer_encoding += b"," + value

    def _note_host(self, value: bytes) -> None:
        if self.host is not None:
            raise Refusal(400, "The header Host must be given once.")
        if value != self.known_host:
            check_host(value)
            self.known_host = value
        self.host = value

    def _check_head(self, version: str) -> None:
        if version not in _VERSIONS:
            raise Refusal(400, "The request must be HTTP/1.1 or HTTP/1.0.")
        if self.host is None and version == "1.1":
            raise Refusal(400, "The header Host is missing.")
        if self.transfer_encoding is not None:
            check_transfer_encoding(self.transfer_encoding, version)
        if len(self.pipeline) >= PIPELINED_REQUESTS:
            raise Refusal(429, f"More than {PIPELINED_REQUESTS} requests wait on one connection.")

    def _complete_scope(self, method: bytes, version: str) -> None:
        target: bytes = self.url
        if not target.startswith(b"/"):
            host, target = split_target(target, method)
            if host is not None:  # it replaces the Host header (RFC 9112, 3.2.2)
                self.headers[:] = [h for h in self.headers if h[0] != b"host"]
                self.headers.append((b"host", host))
        url = httptools.parse_url(target)
        if url.fragment is not None:
            raise Refusal(400, "The request target must not have a fragment (#).")
        path = url.path.decode("ascii")
        scope = self.scope
        scope["method"] = method.decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""

    def _exchange(self, version: str) -> Exchange:
        exchange = Exchange(
            scope=self.scope,
            transport=self.responses,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if self.expect_100_continue and version == "1.1":
            exchange.expect_100()
        write: Any = exchange.respond_whole
        self.scope["extensions"] = {WHOLE_RESPONSE: write}
        return exchange

    def _limit_credit(self) -> None:
        """Bound the size and the deadline of the rest of an incomplete request."""
        self.limit_credit()
        if self.fed_bytes > HEADER_BYTES:
            self.refuse(431, f"The headers are larger than {HEADER_BYTES} bytes.")
        elif self.fed_bytes < 0:
            self.fed_bytes = 0

    def _discard_body(self, size: int) -> None:
        """Discard the rest of a body after an early response, so that the connection can be
        reused."""
        self.discarded_bytes += size + _CHUNK_COST
        if self.discarded_bytes > LINGER_BYTES:
            raise Refusal(413, "The rest of the body is too large to be read and discarded.")

    def _check_upgrade(self, method: bytes) -> None:
        if method == b"CONNECT":
            raise Refusal(405, "This server is not a proxy: CONNECT is not supported.")

    def _continue_without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its Upgrade header. This server supports no other
        protocol, so the request is plain HTTP/1.1; the parser has skipped its body, if any."""
        kept = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        version = self.parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.in_headers = False
        self.data_received(head + b"\r\n".join([*kept, b"", b""]) + rest)

    def _refuse_invalid(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refusal):
            self.refuse(cause.status, str(cause))
        else:
            self.refuse(400, "The request is not valid HTTP/1.1.")


def protocol_class(max_connections: int, observe: Observer) -> type[HardenedProtocol]:
    attributes = {"max_connections": max_connections, "observe": staticmethod(observe)}
    return type("HardenedProtocol", (HardenedProtocol,), attributes)
