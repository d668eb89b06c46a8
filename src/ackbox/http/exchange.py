"""One request and its response: uvicorn's cycle, extended."""

from collections.abc import Callable, Coroutine
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ackbox.http.requests import Headers

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ResponseTransport:
    """The transport of a response. Closing it leaves the peer time to read the response."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: Any, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class Exchange(RequestResponseCycle):
    """A request and its response.

    A client that waits for `100 Continue` and gets a final response instead may or may not send its
    body, so the connection ends after that response. Once the 100 has been sent, the connection may
    be kept alive.

    A client may end its side when its request is complete. Until something is written, the server
    cannot know whether the client still reads or has disconnected. Until a response has begun,
    `receive` therefore reports a disconnect, so that long work stops; a response that the app sends
    is written all the same.
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
        """Note that the client has ended its side and sends nothing more."""
        self.end_connection()
        self.half_closed = True
        self.message_event.set()

    def mark_lost(self) -> None:
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
        """Write a response at once: ASGI's two messages would cost two system calls and two
        packets. Return False if the caller must send ASGI messages instead, because the response
        has no body or the client has not read the bytes written before."""
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
        """Return whether nothing more can be received. `disconnected` then keeps uvicorn from
        sending a 500 if the app ends without a response."""
        if self.half_closed and self.received_all and not self.response_started:
            self.disconnected = True
        return self.disconnected or self.response_complete
