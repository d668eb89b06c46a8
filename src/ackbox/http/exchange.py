"""One request and its response: uvicorn's cycle, with what it lacks."""

from collections.abc import Callable, Coroutine
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ackbox.http.requests import Headers

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ResponseTransport:
    """The transport as a response sees it: closing it leaves the peer time to read the response."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: Any, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class Exchange(RequestResponseCycle):
    """A request and its response.

    A client that waits for `100 Continue` and gets a final response instead may or may not send its
    body, so the connection ends there; it may go on once the 100 has been sent.

    A client may end its side when its request is complete, to say that no more will come or because
    it left: nobody can tell before something is written. So `receive` reports a disconnect until a
    response has begun, by which long work stops, and what is sent is written all the same.
    """

    keep_alive_after_100 = False
    half_closed = False
    received_all = False
    lost = False

    def expect_100(self) -> None:
        self.waiting_for_100_continue = True
        self.keep_alive_after_100, self.keep_alive = self.keep_alive, False

    def end_connection(self) -> None:
        """Make this the last response of its connection."""
        self.keep_alive = self.keep_alive_after_100 = False

    def half_close(self) -> None:
        """Note that the client sends nothing more."""
        self.end_connection()
        self.half_closed = True
        self.message_event.set()

    def lose(self) -> None:
        """Note that nothing can be received or sent any more."""
        self.disconnected = self.lost = True
        self.message_event.set()

    async def receive(self) -> ASGIReceiveEvent:
        if not self._is_over():
            if self.waiting_for_100_continue and not self.transport.is_closing():
                self._continue()
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self._is_over():
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        self.received_all = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def send(self, message: ASGISendEvent) -> Coroutine[Any, Any, None]:
        self.disconnected = self.lost
        return super().send(message)

    def respond_whole(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write a response in one piece, where ASGI's two messages make two system calls and two
        packets. Return False if it must go the usual way: it has no body, or the client does not
        read what was written before."""
        if self.flow.write_paused or self.scope["method"] == "HEAD":
            return False
        if self.lost:
            return True
        lines = [b"%s: %s\r\n" % line for line in (*self.default_headers, *headers)]
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.waiting_for_100_continue = False
        self.response_started = self.response_complete = True
        self.transport.write(b"".join((STATUS_LINE[status], *lines, end, body)))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True

    def _continue(self) -> None:
        self.transport.write(_CONTINUE)
        self.waiting_for_100_continue = False
        self.keep_alive = self.keep_alive_after_100

    def _is_over(self) -> bool:
        """Tell whether nothing more can be received; uvicorn is then content without a response."""
        if self.half_closed and self.received_all and not self.response_started:
            self.disconnected = True
        return self.disconnected or self.response_complete
