"""One keep-alive connection that has exactly one request under way until the load ends."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import httptools


@dataclass
class LoadCounts:
    """The counts that all connections of one load share. When `running` becomes false, each
    connection waits for its last response, so that the acknowledged events are known exactly."""

    requests: int = 0
    acked: int = 0
    errors: int = 0
    latencies: list[float] = field(default_factory=list)
    running: bool = True
    waiting: int = 0
    drained: asyncio.Event = field(default_factory=asyncio.Event)

    def add_response(self, acked: int, refused: int, seconds: float) -> None:
        self.requests += 1
        self.acked += acked
        self.errors += refused
        self.latencies.append(seconds)

    def end_connection(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.drained.set()


Judge = Callable[[int, bytes], tuple[int, int]]
"""From status and body to (events acknowledged, events refused)."""


class Connection(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], judge: Judge, counts: LoadCounts) -> None:
        self._requests = requests
        self._judge = judge
        self._counts = counts
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._sent_at = 0.0
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of it
        self._waiting = True
        self._counts.waiting += 1
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._waiting = False
            self._counts.errors += 1
            self._counts.end_connection()

    def on_body(self, chunk: bytes) -> None:
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        elapsed = time.perf_counter() - self._sent_at
        acked, refused = self._judge(self._parser.get_status_code(), b"".join(self._body))
        self._body.clear()
        self._counts.add_response(acked, refused, elapsed)
        if self._counts.running:
            self._send()
        else:
            self._waiting = False
            self._counts.end_connection()
            self._transport.close()

    def _send(self) -> None:
        request = next(self._requests)
        self._sent_at = time.perf_counter()
        self._transport.write(request)
