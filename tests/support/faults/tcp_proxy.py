"""A TCP proxy in front of a server: it forwards, cuts, or lets connections hang."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

from support.faults.threaded_server import ThreadedServer, serving_in_thread


class TcpProxy:
    """A proxy whose public methods may be called from any thread but its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self._allowed = inf
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refused = 0
        self.server: ThreadedServer

    @property
    def port(self) -> int:
        return self.server.port

    def cut(self) -> None:
        """End all connections and refuse new ones, until `heal`."""
        self.server.do(self._cut)

    def allow(self, count: int) -> None:
        """Accept so many more connections and no others, until `heal`."""
        self._allowed = count

    def hang(self) -> None:
        """Let all connections hang, neither forwarding nor ending, until `heal`."""
        self.server.do(self._flowing.clear)

    def strand(self) -> None:
        """Let the current connections hang for ever, and forward new ones."""
        self.server.do(self._strand)

    def heal(self) -> None:
        self.server.do(self._heal)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._allowed <= 0:
            self.refused += 1
            writer.close()
            return
        self._allowed -= 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        ends, flowing = {writer, far_writer}, self._flowing
        self._ends |= ends
        try:
            await asyncio.gather(
                _forward(reader, far_writer, flowing), _forward(far_reader, writer, flowing)
            )
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    def _cut(self) -> None:
        self._allowed = 0
        for end in self._ends:
            end.transport.abort()

    def _strand(self) -> None:
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def _heal(self) -> None:
        self._allowed = inf
        self._flowing.set()


@contextmanager
def proxied(target: int) -> Iterator[TcpProxy]:
    """Run a proxy in front of this local port."""
    proxy = TcpProxy(target)
    with serving_in_thread(proxy.accept) as proxy.server:
        yield proxy


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            await flowing.wait()
            writer.write(data)
            await writer.drain()
    writer.close()
